"""What the players in Python have in common: a step a line on stdin, what came of it a line on stdout."""

from __future__ import annotations

import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
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

    @abstractmethod
    def name_of(self, error: BaseException) -> str:
        """Kafka's name of an error, where it has one."""


class Mover(ABC):
    """Takes records from a topic, as a member of a group, and sends them to another, offsets and all."""

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
