"""What the players in Python have in common: a step a line on stdin, what came of it a line on stdout."""

from __future__ import annotations

import json
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

TIMEOUT_S = 30.0


class Record(NamedTuple):
    partition: int
    offset: int
    value: bytes


class Player(ABC):
    """Each step is a method; `producers` is what `open` opened, by name, `movers` what `mover` did."""

    def __init__(self) -> None:
        self.producers: dict[str, Any] = {}
        self.movers: dict[str, Mover] = {}

    @abstractmethod
    def hello(self) -> dict[str, str]: ...

    @abstractmethod
    def open(self, name: str, transactional_id: str = "", timeout_ms: int = 60_000) -> None: ...

    @abstractmethod
    def begin(self, name: str) -> None: ...

    @abstractmethod
    def send(self, name: str, topic: str, partition: int, values: list[str]) -> None: ...

    @abstractmethod
    def commit(self, name: str) -> None: ...

    @abstractmethod
    def abort(self, name: str) -> None: ...

    @abstractmethod
    def close(self, name: str) -> None: ...

    @abstractmethod
    def read(self, topic: str, partitions: int, isolation: str, until: str) -> list[list[str]]: ...

    @abstractmethod
    def mover(self, name: str, **config: Any) -> None: ...

    def move(self, name: str, count: int, end: str) -> list[str]:
        return self.movers[name].move(count, end)

    def process(self, name: str) -> None:
        self.movers[name].processing.start()

    def progress(self, name: str) -> int:
        return self.movers[name].processing.progress()

    def stop(self, name: str) -> int:
        moved = self.movers[name].processing.stop()
        self.movers[name].leave()
        return moved

    @abstractmethod
    def name_of(self, error: BaseException) -> str:
        """Kafka's name of an error, where it has one."""


class Mover(ABC):
    """Takes records from a topic, as a member of a group, and sends them to another, offsets and all."""

    def __init__(self) -> None:
        self.processing = Processing(self.move_some)

    @abstractmethod
    def take(self, count: int, wait_s: float) -> list[Record]:
        """At most `count` records; none if none came."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, records: list[Record]) -> None:
        """The records to the target, each to the partition of the same number, and the offsets behind them."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None:
        """And go back to where the group is."""

    @abstractmethod
    def leave(self) -> None: ...

    def must_abort(self, error: Exception) -> bool:
        """Whether it only says that the group has a new generation: what was taken comes anew, here or elsewhere."""
        return False

    def move(self, count: int, end: str) -> list[str]:
        records: list[Record] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(records) < count:
            assert time.monotonic() < deadline, f"{len(records)} of {count} records came"
            records += self.take(count - len(records), 0.1)
        self.begin()
        self.send(records)
        if end == "commit":
            self.commit()
        elif end == "abort":
            self.abort()
        return [record.value.decode() for record in records]

    def move_some(self) -> int:
        records = self.take(10, 0.05)
        if not records:
            return 0
        self.begin()
        try:
            self.send(records)
            self.commit()
        except Exception as error:
            if not self.must_abort(error):
                raise
            self.abort()
            return 0
        return len(records)


class Processing(threading.Thread):
    """A mover at work: `move_some` moves what is there in one transaction, and says how many records."""

    def __init__(self, move_some: Callable[[], int]) -> None:
        super().__init__(daemon=True)
        self._move_some = move_some
        self._is_stopping = threading.Event()
        self._moved = 0
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._is_stopping.is_set():
                self._moved += self._move_some()
        except BaseException as error:
            self._error = error

    def progress(self) -> int:
        if self._error is not None:
            raise self._error
        return self._moved

    def stop(self) -> int:
        self._is_stopping.set()
        self.join(TIMEOUT_S)
        return self.progress()


def ends_of(records: Iterable[Record]) -> dict[int, int]:
    """The offset behind the last record of each partition."""
    return {record.partition: record.offset + 1 for record in records}


class Sorter:
    """Collects what a reader gets, partition by partition, until each had the value that marks the end."""

    def __init__(self, partitions: int, until: str) -> None:
        self.values: list[list[str]] = [[] for _ in range(partitions)]
        self._left = partitions
        self._until = until
        self._deadline = time.monotonic() + TIMEOUT_S

    def wants_more(self) -> bool:
        assert time.monotonic() < self._deadline, f"the end of {self._left} partitions never came"
        return self._left > 0

    def add(self, partition: int, value: bytes) -> None:
        if value.decode() == self._until:
            self._left -= 1
        else:
            self.values[partition].append(value.decode())


def serve(player: Player) -> None:
    """Play steps until there are no more."""
    for line in sys.stdin:
        step = json.loads(line)
        try:
            answer = {"value": getattr(player, step.pop("do"))(**step)}
        except Exception as error:
            answer = {"error": player.name_of(error), "text": str(error)}
        print(json.dumps(answer), flush=True)
