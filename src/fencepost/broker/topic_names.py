"""Topic names that collide: Kafka's metric names have `_` for `.`, so `q.b_c` and `q_b.c` would share theirs."""

from __future__ import annotations

from collections.abc import Collection


class TopicNames:
    """The names of all topics, as they are when the first question is asked: before a request creates any.

    Kafka: of names that collide with each other only, a request may create all.
    """

    def __init__(self, existing: Collection[str]) -> None:
        self._existing = existing
        self._by_metric_name: dict[str, str] | None = None

    def colliding(self, name: str) -> str | None:
        """The existing topic that a new one of this name would collide with."""
        if self._by_metric_name is None:
            self._by_metric_name = {_metric_name(each): each for each in self._existing}
        return None if name in self._existing else self._by_metric_name.get(_metric_name(name))


def _metric_name(name: str) -> str:
    return name.replace(".", "_")
