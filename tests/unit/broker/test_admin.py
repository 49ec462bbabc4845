"""Administrators' changes take effect at once and survive a restart; if the disk refuses one, nothing changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import pytest

from fencepost.broker.cluster import Disk
from fencepost.machines.group.commits import Committer, OffsetToCommit
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    ProduceRequest,
    UpdateFeaturesRequest,
)
from fencepost.protocol.records import iter_batches
from tests.pure_broker import PureBroker

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE = 0, 1


@pytest.fixture
def broker() -> PureBroker:
    broker = PureBroker()
    broker.call(CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("orders", 2, 1)], 10_000), 5)
    return broker


def alter(broker: PureBroker, configs: Mapping[str, str | None], name: str = "orders", kind: int = TOPIC) -> Any:
    request = IncrementalAlterConfigsRequest
    given = [request.AlterableConfig(key, DELETE if text is None else SET, text) for key, text in configs.items()]
    return broker.call(request([request.AlterConfigsResource(kind, name, given)], False), 1).responses[0]


def described(broker: PureBroker, name: str) -> tuple[str, int]:
    request = DescribeConfigsRequest
    reply = broker.call(request([request.DescribeConfigsResource(TOPIC, "orders", [name])], False, False), 4)
    [config] = reply.results[0].configs
    return config.value, config.config_source


def produce(broker: PureBroker, key: bytes | None = b"k", size: int = 1, timestamp_ms: int | None = None) -> str:
    batch = encode_batch([(key, b"x" * size)], broker.now_ms if timestamp_ms is None else timestamp_ms)
    topics = [ProduceRequest.TopicProduceData("orders", partition_data=[ProduceRequest.PartitionProduceData(0, batch)])]
    reply = broker.call(ProduceRequest(None, -1, 1000, topics), 11)
    return errors.name_of(reply.responses[0].partition_responses[0].error_code)


def stored_timestamps(broker: PureBroker) -> list[int]:
    partition = FetchRequest.FetchPartition(0, -1, 0, partition_max_bytes=10_000)
    topics = [FetchRequest.FetchTopic("orders", partitions=[partition])]
    reply = broker.call(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=10_000, topics=topics), 11)
    return [header.max_timestamp for header, _ in iter_batches(reply.responses[0].partitions[0].records)]


def test_the_largest_batch_changes_at_once_and_for_good(broker: PureBroker) -> None:
    assert produce(broker, size=500) == "NONE"
    assert alter(broker, {"max.message.bytes": "200"}).error_code == 0
    assert produce(broker, size=500) == "MESSAGE_TOO_LARGE"
    broker.restart()
    assert produce(broker, size=500) == "MESSAGE_TOO_LARGE"
    assert described(broker, "max.message.bytes") == ("200", 1)
    assert alter(broker, {"max.message.bytes": None}).error_code == 0
    assert produce(broker, size=500) == "NONE"
    assert described(broker, "max.message.bytes") == ("1048588", 5)


def test_the_broker_s_time_is_stamped_from_the_change_on(broker: PureBroker) -> None:
    assert produce(broker, timestamp_ms=5) == "NONE"
    assert alter(broker, {"message.timestamp.type": "LogAppendTime"}).error_code == 0
    assert produce(broker, timestamp_ms=6) == "NONE"
    assert stored_timestamps(broker) == [5, broker.now_ms]


def test_how_old_a_record_may_be_changes_at_once(broker: PureBroker) -> None:
    assert produce(broker, timestamp_ms=5) == "NONE"
    assert alter(broker, {"message.timestamp.before.max.ms": "1000"}).error_code == 0
    assert produce(broker, timestamp_ms=broker.now_ms - 2000) == "INVALID_TIMESTAMP"
    assert produce(broker, timestamp_ms=broker.now_ms - 500) == "NONE"


def test_a_compacted_topic_wants_keys_from_the_change_on(broker: PureBroker) -> None:
    assert produce(broker, key=None) == "NONE"
    assert alter(broker, {"cleanup.policy": "compact"}).error_code == 0
    assert produce(broker, key=None) == "INVALID_RECORD"
    assert produce(broker) == "NONE"


def test_new_topic_settings_reach_the_logs(broker: PureBroker) -> None:
    assert alter(broker, {"segment.bytes": "2048"}).error_code == 0
    for _ in range(5):
        assert produce(broker, size=1500) == "NONE"
    assert len(broker.cluster.topics["orders"].partitions[0].log.segments()) == 5


def test_what_the_disk_refuses_is_not_changed(broker: PureBroker) -> None:
    broker.storage.full = True
    refused = alter(broker, {"max.message.bytes": "200"})
    assert refused.error_code == errors.KAFKA_STORAGE_ERROR
    assert "no space" in refused.error_message
    request = UpdateFeaturesRequest
    update = request.FeatureUpdateKey("transaction.version", 1, False, 2)
    assert broker.call(request(1000, [update], False), 1).error_code == errors.KAFKA_STORAGE_ERROR
    broker.storage.full = False
    assert produce(broker, size=500) == "NONE"
    assert described(broker, "max.message.bytes") == ("1048588", 5)
    assert finalized(broker) == (2, 0)


def test_what_coordinators_keep_stays_compacted(broker: PureBroker) -> None:
    broker.call(FindCoordinatorRequest("g", 0), 1)
    for configs in ({"cleanup.policy": "delete"}, {"cleanup.policy": None}, {"cleanup.policy": "compact,delete"}):
        refused = alter(broker, configs, name="__consumer_offsets")
        assert refused.error_code == errors.INVALID_CONFIG
        assert "must be compact" in refused.error_message
    assert alter(broker, {"segment.bytes": "1048576"}, name="__consumer_offsets").error_code == 0


def create_own(broker: PureBroker, name: str, partitions: int, **configs: str) -> int:
    given = [CreateTopicsRequest.CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    request = CreateTopicsRequest([CreateTopicsRequest.CreatableTopic(name, partitions, 1, [], given)], 10_000)
    error: int = broker.call(request, 5).topics[0].error_code
    return error


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_a_client_creates_what_coordinators_keep_as_they_would_or_not_at_all(name: str, broker: PureBroker) -> None:
    assert create_own(broker, name, 5) == errors.INVALID_CONFIG
    assert create_own(broker, name, 5, cleanup_policy="delete") == errors.INVALID_CONFIG
    assert create_own(broker, name, 1, cleanup_policy="compact") == errors.INVALID_PARTITIONS
    assert name not in broker.cluster.topics
    assert create_own(broker, name, 5, cleanup_policy="compact", segment_bytes="1048576") == errors.NONE
    assert create_own(broker, name, 5, cleanup_policy="compact") == errors.TOPIC_ALREADY_EXISTS
    broker.restart()
    assert broker.call(FindCoordinatorRequest("g", 0), 1).error_code == errors.NONE


@pytest.mark.parametrize("name", ["--1", "²", "1_0", "\u0661", "9" * 5000, "-"])
def test_a_broker_whose_name_is_no_number_is_refused(name: str, broker: PureBroker) -> None:
    refused = alter(broker, {"message.max.bytes": "200"}, name=name, kind=BROKER)
    assert refused.error_code == errors.INVALID_REQUEST
    assert "must be an integer" in refused.error_message


def test_the_broker_says_that_its_own_settings_stay(broker: PureBroker) -> None:
    refused = alter(broker, {"message.max.bytes": "200"}, name="1", kind=BROKER)
    assert refused.error_code == errors.INVALID_REQUEST
    assert "Cannot update these configs dynamically: [message.max.bytes]" in refused.error_message
    assert "--set" in refused.error_message
    refused = alter(broker, {"consumer.session.timeout.ms": "50000"}, name="g", kind=GROUP)
    assert refused.error_code == errors.INVALID_REQUEST


def finalized(broker: PureBroker) -> tuple[int, int]:
    reply = broker.call(ApiVersionsRequest("test", "1"), 4)
    levels = {feature.name: feature.max_version_level for feature in reply.finalized_features}
    return levels.get("transaction.version", 0), reply.finalized_features_epoch


def test_a_feature_and_its_epoch_survive_a_restart(broker: PureBroker) -> None:
    assert finalized(broker) == (2, 0)
    request = UpdateFeaturesRequest
    for level, how, epoch in ((0, 2, 1), (1, 1, 2)):
        update = request.FeatureUpdateKey("transaction.version", level, False, how)
        assert broker.call(request(1000, [update], False), 1).error_code == 0
        broker.restart()
        assert finalized(broker) == (level, epoch)


def test_a_partition_takes_as_much_of_the_folder_as_it_has_batches(broker: PureBroker) -> None:
    broker.cluster.disk = lambda: Disk("/data", 1000, 400)
    assert produce(broker) == "NONE"
    [folder] = broker.call(DescribeLogDirsRequest(None), 4).results
    assert (folder.log_dir, folder.total_bytes, folder.usable_bytes) == ("/data", 1000, 400)
    sizes = {p.partition_index: p.partition_size for topic in folder.topics for p in topic.partitions}
    assert sizes == {0: len(encode_batch([(b"k", b"x")], 0)), 1: 0}


def committed(broker: PureBroker, group: str) -> dict[int, int]:
    request = OffsetFetchRequest
    groups = [request.OffsetFetchRequestGroup(group, topics=None)]
    reply = broker.call(request(groups=groups), 8)
    return {p.partition_index: p.committed_offset for topic in reply.groups[0].topics for p in topic.partitions}


def test_deleted_offsets_and_groups_stay_deleted(broker: PureBroker) -> None:
    kind = OffsetCommitRequest.OffsetCommitRequestPartition
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic("orders", partitions=[kind(0, 5), kind(1, 6)])]
    for group in ("one", "two"):
        broker.call(OffsetCommitRequest(group, topics=topics), 8)
    partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(0)
    wanted = [OffsetDeleteRequest.OffsetDeleteRequestTopic("orders", [partition])]
    assert broker.call(OffsetDeleteRequest("one", wanted), 0).error_code == 0
    assert broker.call(DeleteGroupsRequest(["two"]), 2).results[0].error_code == 0
    for _ in range(2):
        assert committed(broker, "one") == {1: 6}
        assert committed(broker, "two") == {}
        broker.restart()


class Killed(BaseException):
    pass


def test_a_new_topic_has_no_offsets_of_a_deleted_namesake_after_a_crash(
    broker: PureBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: object) -> NoReturn:
        raise Killed

    broker.call(CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("kept", 1, 1)], 10_000), 5)
    kind = OffsetCommitRequest.OffsetCommitRequestPartition
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic("orders", partitions=[kind(0, 42), kind(1, 43)])]
    topics.append(OffsetCommitRequest.OffsetCommitRequestTopic("kept", partitions=[kind(0, 7)]))
    broker.call(OffsetCommitRequest("g", topics=topics), 8)
    monkeypatch.setattr(broker.cluster.groups, "topics_deleted", kill)
    with pytest.raises(Killed):
        broker.call(DeleteTopicsRequest(topic_names=["orders"]), 5)
    broker.restart()
    broker.call(CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("orders", 2, 1)], 10_000), 5)
    for _ in range(2):
        assert committed(broker, "g") == {0: 7}
        broker.restart()


def test_an_offset_of_no_known_topic_is_kept_over_a_restart(broker: PureBroker) -> None:
    offsets = [OffsetToCommit("orders", 0, 5), OffsetToCommit("elsewhere", 1, 6)]
    broker.cluster.groups.commit_offsets("g", Committer(), offsets, 8, -1, broker.now_ms)
    broker.restart()
    assert committed(broker, "g") == {0: 5, 1: 6}


def test_a_full_disk_keeps_groups_and_their_offsets(broker: PureBroker) -> None:
    kind = OffsetCommitRequest.OffsetCommitRequestPartition
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic("orders", partitions=[kind(0, 5)])]
    broker.call(OffsetCommitRequest("one", topics=topics), 8)
    broker.storage.full = True
    assert broker.call(DeleteGroupsRequest(["one"]), 2).results[0].error_code == errors.NOT_COORDINATOR
    partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(0)
    wanted = [OffsetDeleteRequest.OffsetDeleteRequestTopic("orders", [partition])]
    assert broker.call(OffsetDeleteRequest("one", wanted), 0).error_code == errors.NOT_COORDINATOR
    assert committed(broker, "one") == {0: 5}
