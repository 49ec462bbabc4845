"""The names in a transcript, and what the broker calls the same things."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from fencepost.protocol.topic_partition import TopicPartition


class Names:
    """`prefix` separates the names of transcripts that share a broker. Topics of the broker itself have none.

    A producer id is a name too; the first reply that mentions it defines its number.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.producer_ids: dict[str, int] = {}

    def full(self, name: str) -> str:
        return "" if name == '""' else self.prefix + name

    def short(self, name: str) -> str:
        return name.removeprefix(self.prefix)

    def topic(self, topic: str) -> str:
        return topic if topic.startswith("__") else self.full(topic)

    def partition(self, text: str) -> TopicPartition:
        topic, _, index = text.rpartition("-")
        return self.topic(topic), int(index)

    def partitions_by_topic(self, partitions: Iterable[str]) -> dict[str, list[int]]:
        topics: dict[str, list[int]] = {}
        for topic, index in map(self.partition, partitions):
            topics.setdefault(topic, []).append(index)
        return topics

    def producer(self, text: str) -> tuple[int, int]:
        """`1/0` is producer id 1 with epoch 0."""
        name, _, epoch = text.partition("/")
        number = self.producer_ids.get(name)
        return (int(name) if number is None else number), int(epoch)

    def agree(self, expected: list[str], actual: list[str]) -> bool:
        """Compare the words of a reply. If all of them agree, new names of producer ids get their numbers."""
        known = dict(self.producer_ids)
        if len(expected) == len(actual) and all(self._is_same(*pair) for pair in zip(expected, actual)):
            return True
        self.producer_ids = known
        return False

    def _is_same(self, expected: str, actual: str) -> bool:
        name = expected.removeprefix("pid=")
        if name == expected or not actual.startswith("pid="):
            return fnmatchcase(actual, expected.replace("[", "[[]"))
        number = int(actual.removeprefix("pid="))
        if name not in self.producer_ids and number not in self.producer_ids.values():
            self.producer_ids[name] = number
        return self.producer_ids.get(name) == number
