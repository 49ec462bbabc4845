"""ConsumerGroupHeartbeat where a broker would take long to set up: very many topics."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from fencepost.machines.group.config import GroupConfig
from fencepost.machines.group.consumer.group import ConsumerGroup, Draft, TopicInfo
from fencepost.machines.group.consumer.heartbeat import ConsumerHeartbeat, GroupRefused, heartbeat
from fencepost.protocol import errors


class ManyTopics:
    version = 1

    def __init__(self, names: Iterable[str]) -> None:
        self._topics = {name: TopicInfo(name, i.to_bytes(16, "big"), 1) for i, name in enumerate(names)}

    def by_name(self, name: str) -> TopicInfo | None:
        return self._topics.get(name)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        return None

    def names(self) -> Iterable[str]:
        return self._topics


def subscribe(regex: str, topics: ManyTopics) -> frozenset[str]:
    draft = Draft(ConsumerGroup("g"))
    joins = ConsumerHeartbeat(
        group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=5_000, topic_regex=regex, owned=frozenset()
    )
    heartbeat(draft, joins, topics, GroupConfig(), 1_000)
    return draft.group.regexes[regex].topics


def test_a_plain_pattern_is_matched_however_many_topics_there_are() -> None:
    topics = ManyTopics(f"customer.orders.events.eu-central-1.{i:06d}" for i in range(30_000))
    assert len(subscribe(r"customer\.orders\..*", topics)) == 30_000
    assert len(subscribe(r".*\.0000\d\d", topics)) == 100


def test_a_pattern_that_would_take_too_long_for_so_many_topics_is_refused() -> None:
    topics = ManyTopics(f"{i:020b}".replace("0", "a").replace("1", "b") * 12 for i in range(10_000))
    with pytest.raises(GroupRefused, match="more than 400000000 steps") as refused:
        subscribe("(a|b)*a(a|b){200}", topics)
    assert refused.value.code == errors.INVALID_REGULAR_EXPRESSION
