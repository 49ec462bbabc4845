"""The answers of a cluster to the questions of this package; how long one waits for them, how questions are split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from fencepost.client.client import COORDINATOR_MOVED, KafkaClient, retry
from fencepost.client.failures import BrokerError
from fencepost.protocol import errors
from fencepost.protocol.schema import Message

K = TypeVar("K")
V = TypeVar("V")


class NamedPartition(NamedTuple):
    """A `TopicPartition` whose fields have names, as the documents of the tools need them. Its text is `orders-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ListedTxn(NamedTuple):
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class DescribedTxn(NamedTuple):
    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int  # -1: no transaction began since the producer registered.
    partitions: tuple[NamedPartition, ...]


class Producer(NamedTuple):
    """A producer in the memory of the leader of one partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    txn_start_offset: int  # -1: no open transaction.


class Rpc(NamedTuple):
    """A request of a transactional producer. Only Fencepost brokers remember them."""

    at_ms: int
    name: str
    version: int
    client_id: str | None
    host: str
    port: int
    producer_id: int
    producer_epoch: int
    about: str
    error_code: int
    duration_us: int  # -1: not answered yet.


@dataclass(slots=True)
class Answers(Generic[K, V]):
    found: dict[K, V] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    # Resources that this user may not describe.
    denied: set[K] = field(default_factory=set)
    # Partitions that do not exist, each with its entry in `problems`.
    gone: dict[K, str] = field(default_factory=dict)


# An operator waits at a terminal for the answer.
DEADLINE_S = 10.0


def ask(
    client: KafkaClient,
    node_id: int,
    request: Message,
    error_of: Callable[[Any], int] = lambda r: int(r.error_code),
    at_most: int | None = None,
) -> Any:
    """Ask one broker, with at most this version; ask again while the error is retriable. Raises ClientError."""

    def attempt() -> Any:
        response = client.send(client.broker(node_id), request, at_most)
        code = error_of(response)
        if code:
            raise BrokerError(code, type(request).__name__.removesuffix("Request"))
        return response

    return retry(attempt, DEADLINE_S)


def moved(answers: Iterable[Any]) -> int:
    """The first error that says that a coordinator has moved or is loading; NONE: there is none."""
    return next((each.error_code for each in answers if each.error_code in COORDINATOR_MOVED), errors.NONE)


def by_value(mapping: Mapping[K, int]) -> dict[int, list[K]]:
    grouped: dict[int, list[K]] = {}
    for key, value in mapping.items():
        grouped.setdefault(value, []).append(key)
    return grouped


def chunks(items: Sequence[V], size: int) -> Iterator[Sequence[V]]:
    return (items[i : i + size] for i in range(0, len(items), size))
