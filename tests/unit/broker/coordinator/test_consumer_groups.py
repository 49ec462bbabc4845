"""Consumer groups beyond the conformance stories: time, a full disk, kill -9, patterns, and migration from classic."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fencepost.machines import pattern
from fencepost.protocol import errors
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    CreateTopicsRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
    UpdateFeaturesRequest,
)
from tests.conformance.consumer_requests import ALL, SETTINGS, Place, Stage
from tests.pure_broker import Pending, PureBroker

HOUR_MS = 3_600_000


def stage_with(**settings: str) -> tuple[PureBroker, Stage]:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    broker = PureBroker(SETTINGS | {"group.consumer.session.timeout.ms": "45000"} | given)
    return broker, Stage(broker)


def test_a_static_member_keeps_its_place_only_as_long_as_a_session() -> None:
    broker, s = stage_with()
    m = s.member("g", "m", instance_id="i")
    m.beat()
    m.beat(epoch=-2, instance_id="i")
    broker.advance(44_000)
    assert "m" in s.describe("g")[4]
    broker.advance(2_000)
    assert s.state("g") == "Empty"


def test_a_static_member_that_did_not_hear_the_answer_may_ask_again() -> None:
    _, s = stage_with()
    m = s.member("g", "m", instance_id="i")
    assert m.beat() == (2, ALL)
    assert m.beat(epoch=0) == (2, ALL)
    assert s.member("g", "another", instance_id="i").beat() == "UNRELEASED_INSTANCE_ID"


def test_an_instance_id_that_a_member_gave_up_can_be_used_by_another() -> None:
    _, s = stage_with()
    m = s.member("g", "m", instance_id="one")
    assert m.beat() == (2, ALL)
    assert m.beat(epoch=0, instance_id="two") == (2, ALL)
    assert s.member("g", "n", instance_id="two").beat() == "UNRELEASED_INSTANCE_ID"
    m.beat(epoch=-1, instance_id="two")
    for name, instance_id in (("n", "one"), ("o", "two")):
        assert s.member("g", name, instance_id=instance_id).beat()[0] > 0


def test_a_full_disk_refuses_and_changes_nothing() -> None:
    broker, s = stage_with()
    one, two = s.member("g", "one"), s.member("g", "two")
    one.beat()
    before = s.describe("g")
    broker.storage.full = True
    assert two.beat() == "NOT_COORDINATOR"
    assert one.beat(subscribed_topic_names=["refunds"]) == "NOT_COORDINATOR"
    assert one.beat(epoch=-1) == "NOT_COORDINATOR"
    assert one.beat() == (2, None), "who changes nothing needs no disk"
    broker.advance(46_000)
    assert s.describe("g") == before, "and who is late stays until it can be written down"
    broker.storage.full = False
    broker.advance(2_000)
    assert s.state("g") == "Empty"


def test_a_pattern_finds_new_topics_at_the_next_heartbeat() -> None:
    _, s = stage_with()
    m = s.member("g", "m", subscribed_topic_names=None, subscribed_topic_regex="pay.*")
    assert m.beat() == (2, [])
    s.create("payments", 2)
    s.create("others")
    assert m.beat() == (3, [("payments", 0), ("payments", 1)])
    assert m.beat(subscribed_topic_regex="[") == "INVALID_REGULAR_EXPRESSION"
    assert m.beat(subscribed_topic_regex="pay.*|oth.*") == (4, [("others", 0), ("payments", 0), ("payments", 1)])


def test_a_pattern_that_fails_fails_only_the_member_whose_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern, "MAX_STEPS", 1_000_000)
    broker, s = stage_with()
    named = s.member("g", "named")
    hard = s.member("g", "hard", subscribed_topic_names=None, subscribed_topic_regex="(a|b)*a(a|b){300}|ref.*")
    named.beat()
    assert hard.settle() == [("refunds", 0), ("refunds", 1)]
    before = named.settle(), named.epoch
    names = random.Random(1)
    new = [CreateTopicsRequest.CreatableTopic("".join(names.choices("ab", k=240)), 1, 1) for _ in range(100)]
    broker.call(CreateTopicsRequest(new, 1_000), 5)
    assert named.beat(rack_id="r") == (named.epoch, None)
    assert hard.beat() == "INVALID_REGULAR_EXPRESSION"
    assert hard.beat() == "INVALID_REGULAR_EXPRESSION"
    assert (named.settle(), named.epoch) == before
    assert hard.beat(subscribed_topic_regex="ref.*")[0] > 0


def test_a_pattern_survives_a_restart_and_goes_with_its_last_member() -> None:
    broker, s = stage_with()
    m = s.member("g", "m", subscribed_topic_names=None, subscribed_topic_regex="ref.*")
    m.beat()
    broker.restart()
    group = broker.cluster.groups.shard_of("g", broker.now_ms).consumer["g"]
    assert {regex: found.topics for regex, found in group.regexes.items()} == {"ref.*": {"refunds"}}
    m.beat(epoch=-1)
    broker.restart()
    assert broker.cluster.groups.shard_of("g", broker.now_ms).consumer["g"].regexes == {}


def test_a_group_is_not_assigned_anew_more_often_than_the_setting_says() -> None:
    broker, s = stage_with(group_consumer_assignment_interval_ms="1000")
    one, two = s.member("g", "one"), s.member("g", "two")
    assert one.beat() == (2, ALL)
    assert two.beat() == (2, [])
    assert s.state("g") == "Assigning"
    broker.advance(1_000)
    assert two.beat() == (3, None)
    assert len(one.beat(owned=ALL)[1]) == 2


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_group_gets_its_partitions_though_the_clock_was_set_back(is_restarted: bool) -> None:
    broker, s = stage_with(group_consumer_assignment_interval_ms="1000")
    one, two = s.member("g", "one"), s.member("g", "two")
    one.beat()
    broker.now_ms -= HOUR_MS
    if is_restarted:
        broker.restart()
    one.beat(epoch=-1)
    two.beat()
    broker.advance(1_000)
    two.beat()
    assert two.owned == ALL


def test_the_protocol_can_be_switched_off() -> None:
    broker, s = stage_with()
    update = UpdateFeaturesRequest.FeatureUpdateKey("group.version", 0, False, 2)
    assert broker.call(UpdateFeaturesRequest(1000, [update], False), 1).error_code == 0
    broker.restart()
    assert s.member("g", "m").beat() == "UNSUPPORTED_VERSION"
    assert s.describe("g")[0] == "UNSUPPORTED_VERSION"


def test_offsets_of_topics_that_no_member_subscribes_to_expire() -> None:
    broker, s = stage_with(group_consumer_session_timeout_ms=str(2 * HOUR_MS), offsets_retention_minutes="60")
    m = s.member("g", "m")
    m.beat()
    assert s.commit("g", 2, "m", ALL[:1]) == "NONE"
    assert s.commit("g", 2, "m", [("refunds", 0)]) == "NONE"
    for _ in range(3):
        broker.advance(HOUR_MS)
        m.beat()
    stored = broker.cluster.groups.shard_of("g", broker.now_ms).offsets.committed("g")
    assert list(stored) == [("orders", 0)]


# --- transactions -------------------------------------------------------------------------------------------


def commit_in_txn(s: Stage, member: str, epoch: int, producer: tuple[int, int], version: int = 3) -> str:
    kind = TxnOffsetCommitRequest
    partition = kind.TxnOffsetCommitRequestPartition(0, 9)
    topics = [kind.TxnOffsetCommitRequestTopic("orders", [partition])]
    request = kind("t", "g", *producer, epoch, member, None, topics)
    return errors.name_of(s.call(request, version).topics[0].partitions[0].error_code)


def test_a_transaction_commits_offsets_for_a_member_of_this_epoch() -> None:
    _, s = stage_with()
    m = s.member("g", "m")
    m.beat()
    reply = s.call(InitProducerIdRequest("t", 60_000), 4)
    producer = reply.producer_id, reply.producer_epoch
    s.call(AddOffsetsToTxnRequest("t", *producer, "g"), 3)
    assert commit_in_txn(s, "m", 2, producer) == "NONE"
    assert commit_in_txn(s, "", -1, producer) == "NONE"
    assert commit_in_txn(s, "m", 3, producer) == "ILLEGAL_GENERATION"
    assert commit_in_txn(s, "m", 1, producer) == "ILLEGAL_GENERATION"
    assert commit_in_txn(s, "x", 2, producer) == "UNKNOWN_MEMBER_ID"
    m.beat(epoch=-1)
    assert commit_in_txn(s, "m", 2, producer) == "UNKNOWN_MEMBER_ID"


# --- from classic, and back ---------------------------------------------------------------------------------


def classic_member(s: Stage, group: str = "g", owned: list[Place] | None = None) -> Any:
    """A group with one member of the classic protocol, that reads everything."""
    joined = s.join(group, s.join(group).member_id)
    s.sync(group, joined, {joined.member_id: ALL if owned is None else owned})
    return joined


def test_a_join_held_in_a_classic_group_is_answered_when_the_group_is_upgraded() -> None:
    broker, s = stage_with()
    first = classic_member(s)
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol("range", b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff")]
    request = JoinGroupRequest("g", 30_000, 30_000, "", None, "consumer", protocols)
    waiting = broker.send(request, 3)
    assert not waiting.connection.is_answered, "the others have to join first"
    assert s.member("g", "m").beat() == (2, [])
    assert waiting.response.error_code == errors.REBALANCE_IN_PROGRESS
    assert s.beat("g", first) == "REBALANCE_IN_PROGRESS"


def test_a_classic_member_that_never_joins_again_is_fenced() -> None:
    broker, s = stage_with()
    old = classic_member(s)
    m = s.member("g", "m")
    m.beat()
    for _ in range(12):
        assert s.beat("g", old) == "REBALANCE_IN_PROGRESS"
        m.beat()
        broker.advance(2_500)
    assert s.beat("g", old) == "UNKNOWN_MEMBER_ID"
    assert m.settle() == ALL


@pytest.mark.parametrize("leaves", [True, False])
def test_what_the_last_consumer_member_read_is_shared_out_again_whatever_restart(leaves: bool) -> None:
    broker, s = stage_with(group_consumer_session_timeout_ms="5000")
    old = classic_member(s)
    m = s.member("g", "m")
    m.beat()
    again = s.join("g", old.member_id, ALL)
    kept = s.sync("g", again)
    third = s.join("g", old.member_id, kept)
    assert s.sync("g", third) == kept != ALL
    assert sorted([*m.settle(), *kept]) == ALL
    assert s.beat("g", third) == "NONE"
    if leaves:
        m.beat(epoch=-1)
    else:
        broker.advance(6_000)
    assert s.describe("g")[0] == "GROUP_ID_NOT_FOUND"
    generation = broker.cluster.groups.shard_of("g", broker.now_ms).classic["g"].generation
    for _ in range(2):
        broker.restart()
        alive = HeartbeatRequest("g", generation, old.member_id)
        assert broker.call(alive, 3).error_code == errors.REBALANCE_IN_PROGRESS
    last = s.join("g", old.member_id, kept)
    assert (last.leader, len(last.members)) == (old.member_id, 1)
    assert s.sync("g", last, {old.member_id: ALL}) == ALL
    broker.restart()
    assert s.beat("g", last) == "NONE", "and that is where it ends"


def test_a_group_is_upgraded_while_a_member_waits_that_lacks_its_protocol() -> None:
    broker, s = stage_with()
    subscription = b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"

    def join(member_id: str, *names: str) -> Pending:
        protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name, subscription) for name in names]
        return broker.send(JoinGroupRequest("g", 30_000, 30_000, member_id, None, "consumer", protocols), 5)

    first = join(join("", "range", "roundrobin").response.member_id, "range", "roundrobin").response
    assert first.protocol_name == "range"
    s.sync("g", first, {first.member_id: ALL})
    waiting = join(join("", "roundrobin").response.member_id, "roundrobin")
    assert not waiting.connection.is_answered
    assert s.member("g", "m").beat() == (2, [])
    assert waiting.response.error_code == errors.REBALANCE_IN_PROGRESS
    assert len(s.describe("g")[4]) == 3


def test_after_a_restart_a_classic_member_has_the_session_that_it_asked_for() -> None:
    broker, s = stage_with(group_consumer_session_timeout_ms="5000")
    old = classic_member(s)  # Its session is longer.
    m = s.member("g", "m")
    m.beat()
    broker.restart()
    broker.advance(4_000)
    m.beat()
    broker.advance(4_000)
    assert s.beat("g", old) == "REBALANCE_IN_PROGRESS"


def test_a_full_disk_leaves_a_classic_group_classic() -> None:
    broker, s = stage_with()
    old = classic_member(s)
    broker.storage.full = True
    assert s.member("g", "m").beat() == "NOT_COORDINATOR"
    assert s.beat("g", old) == "NONE"
    broker.storage.full = False
    assert s.member("g", "m").beat() == (2, [])


@pytest.mark.parametrize(
    ("policy", "may_upgrade", "may_downgrade", "may_mix"),
    [
        ("bidirectional", True, True, True),
        ("upgrade", True, False, True),
        ("downgrade", False, True, True),
        ("disabled", False, False, False),
    ],
)
def test_the_setting_says_which_way_groups_may_go(
    policy: str, may_upgrade: bool, may_downgrade: bool, may_mix: bool
) -> None:
    _, s = stage_with(group_consumer_migration_policy=policy)
    classic_member(s, "up")
    came = s.member("up", "m").beat()
    assert (came == (2, [])) is may_upgrade
    assert (came == "GROUP_ID_NOT_FOUND") is not may_upgrade
    m = s.member("down", "m")
    m.beat()
    joined = s.join("down", s.join("down").member_id)
    assert errors.name_of(joined.error_code) == ("NONE" if may_mix else "INCONSISTENT_GROUP_PROTOCOL")
    m.beat(epoch=-1)
    assert (s.describe("down")[0] == "GROUP_ID_NOT_FOUND") is may_downgrade


def test_a_group_with_an_assignor_of_its_own_is_not_upgraded() -> None:
    _, s = stage_with()
    joined = s.join("g", s.join("g").member_id)
    custom = SyncGroupRequest.SyncGroupRequestAssignment(joined.member_id, s.encode(ALL)[:-4] + b"\0\0\0\1x")
    request = SyncGroupRequest("g", joined.generation_id, joined.member_id, None, assignments=[custom])
    assert s.call(request, 3).error_code == 0
    assert s.member("g", "m").beat() == "GROUP_ID_NOT_FOUND"
    assert s.beat("g", joined) == "NONE"


def test_a_static_member_changes_its_protocol_and_keeps_its_partitions() -> None:
    _, s = stage_with()
    joined = s.join("g", "", (), "i")
    request = SyncGroupRequest.SyncGroupRequestAssignment(joined.member_id, s.encode(ALL))
    s.call(SyncGroupRequest("g", joined.generation_id, joined.member_id, "i", assignments=[request]), 3)
    m = s.member("g", "m", instance_id="i")
    assert m.settle() == ALL
    assert list(s.describe("g")[4]) == ["m"]
    back = s.join("g", "", (), "i")  # And back again.
    assert errors.name_of(back.error_code) == "NONE"
    assert s.describe("g")[0] == "GROUP_ID_NOT_FOUND"
    assert m.beat(instance_id="i") == "GROUP_ID_NOT_FOUND"
