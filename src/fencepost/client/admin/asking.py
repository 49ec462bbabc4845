"""The time limit of a question, and how it is split into requests to several brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from fencepost.client.client import KafkaClient, retry
from fencepost.client.failures import BrokerError
from fencepost.protocol.schema import Message

# An operator waits at a terminal for the answer.
DEADLINE_S = 10.0

K = TypeVar("K")
V = TypeVar("V")


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


def by_value(mapping: Mapping[K, int]) -> dict[int, list[K]]:
    grouped: dict[int, list[K]] = {}
    for key, value in mapping.items():
        grouped.setdefault(value, []).append(key)
    return grouped


def chunks(items: Sequence[V], size: int) -> Iterator[Sequence[V]]:
    return (items[i : i + size] for i in range(0, len(items), size))
