"""What a writer needs of a producer, whatever its client library is."""

from __future__ import annotations

from typing import NamedTuple, Protocol

KEYS = 6


class Abortable(Exception):
    """The transaction was refused, and this producer can abort it. `error` is Kafka's name."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


class Broken(Exception):
    """This producer cannot continue: it is fenced, or an answer is missing that it needs."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


class InputPlace(NamedTuple):
    topic: str
    partition: int
    offset: int


def key_of(value: str) -> str:
    """The key of a record in the workload: each client has a few of its own."""
    by, _, place = value.split(":")
    return f"{by}/{int(place) % KEYS}"


class TxnProducer(Protocol):
    """Every method raises Abortable or Broken. A record has the key that `key_of` finds in its value."""

    def init(self) -> None: ...

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, value: str) -> None: ...

    def flush(self) -> None:
        """Have the records reach the log, as far as this is possible now."""
        ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class InputSource(Protocol):
    """The inputs of a copier, read committed, from the committed offsets of its group on."""

    group_id: str

    def poll(self, most: int) -> list[InputPlace]: ...

    def send_offsets(self, offsets: list[InputPlace]) -> None:
        """Send them within the transaction of its producer: each is the next offset to read."""
        ...

    def rewind(self) -> None:
        """Go back to the committed offsets: later records are read again."""
        ...

    def close(self) -> None: ...
