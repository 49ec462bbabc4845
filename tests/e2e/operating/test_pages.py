"""The documents of the pages of partitions and groups: the same on Fencepost and on Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from fencepost.client.client import KafkaClient
from fencepost.web.cluster import WatchedCluster
from fencepost.web.page import SubjectNotFound
from fencepost.web.pages import groups, partition
from tests.e2e.operating.conftest import Run
from tests.e2e.operating.test_tail import await_marker, producer_of, write
from tests.readers.reading import TIMEOUT_S
from tests.txn_tools import commit_offsets

Unique = Callable[[str], str]
HOSTILE = '<img src=x onerror=alert(1)>\x00\x1b[31m\u202e\u2028"\\'


@pytest.fixture
def cluster(servers: str) -> Iterator[WatchedCluster]:
    cluster = WatchedCluster(lambda: KafkaClient({"bootstrap.servers": servers}))
    yield cluster
    cluster.close()


@pytest.fixture
def topic(run: Run, unique: Unique) -> str:
    name = unique("paged")
    assert run("topic", "create", name).exit_code == 0
    return name


def log_of(cluster: WatchedCluster, topic: str, **query: str) -> dict[str, Any]:
    return partition.ask(cluster, {"topic": topic, "partition": "0"}, query)


def without(document: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}


def test_a_partition_has_the_same_document_on_every_kafka(
    run: Run, servers: str, cluster: WatchedCluster, topic: str, unique: Unique
) -> None:
    id_, open_id = unique("sink"), unique("open")
    done, waiting = producer_of(servers, id_), producer_of(servers, open_id)
    done.begin_transaction()
    write(
        done, topic, HOSTILE, key=b"\xff", headers=[("<b>", b"\x00\xff"), ("none", None)], timestamp=1_700_000_000_000
    )
    done.commit_transaction(TIMEOUT_S)
    await_marker(run, topic, 1)
    waiting.begin_transaction()
    write(waiting, topic, '{"total": 12}', timestamp=1_700_000_001_000)
    document = log_of(cluster, topic)
    ids = {run["transactional_id"]: run["producer_id"] for run in document["runs"]}
    assert without(document, "cells") == {
        "topic": topic,
        "partition": 0,
        "log_start_offset": 0,
        "last_stable_offset": 2,
        "high_watermark": 3,
        "first_offset": 0,
        "end_offset": 3,
        "runs": [
            {
                "kind": kind,
                "first_offset": offset,
                "last_offset": offset,
                "producer_id": ids[name],
                "producer_epoch": 0,
                "transactional_id": name,
                "ends": "committed" if kind == "marker" else None,
                "problem": None,
            }
            for kind, offset, name in (("committed", 0, id_), ("marker", 1, id_), ("open", 2, open_id))
        ],
        "open_transactions": [{"producer_id": ids[open_id], "transactional_id": open_id, "first_offset": 2}],
        "opened": None,
        "remark": "",
        "problems": [],
        "is_following": True,
        "earlier": None,
        "later": None,
    }
    assert [(cell["read_uncommitted"], cell["read_committed"]) for cell in document["cells"]] == [
        ("gets", "gets"),
        ("skips", "skips"),
        ("gets", "waits"),
    ]
    opened = log_of(cluster, topic, offset="0")["opened"]
    assert without(opened, "cell", "leader_epoch", "size_bytes") == {
        "says": "Its transaction was committed. All readers get it.",
        "time": "2023-11-14 22:13:20.000Z",
        "key": {"format": "hex", "text": "00000000  ff", "size_bytes": 1, "is_cut": False},
        "value": {"format": "text", "text": HOSTILE, "size_bytes": len(HOSTILE.encode()), "is_cut": False},
        "headers": [
            {"name": "<b>", "value": {"format": "hex", "text": "00000000  00 ff", "size_bytes": 2, "is_cut": False}},
            {"name": "none", "value": {"format": "null", "text": "", "size_bytes": 0, "is_cut": False}},
        ],
        "header_count": 2,
        "compression": "none",
        "batch_first_offset": 0,
        "batch_last_offset": 0,
        "base_sequence": 0,
        "coordinator_epoch": None,
    }
    marker = log_of(cluster, topic, record="1")["opened"]
    assert (marker["cell"]["kind"], marker["cell"]["outcome"], marker["coordinator_epoch"]) == (
        "marker",
        "committed",
        0,
    )
    waits = log_of(cluster, topic, offset="2")["opened"]
    assert (waits["cell"]["offset"], waits["value"]["text"]) == (2, '{\n  "total": 12\n}')


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_compressed_mebibyte_is_cut_with_its_size(
    servers: str, cluster: WatchedCluster, topic: str, codec: str
) -> None:
    producer = Producer({"bootstrap.servers": servers, "compression.type": codec, "message.max.bytes": 2_000_000})
    producer.produce(topic, "x" * (1 << 20), partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    opened = log_of(cluster, topic, offset="0")["opened"]
    assert (opened["compression"], opened["value"]["size_bytes"], opened["value"]["is_cut"]) == (codec, 1 << 20, True)
    assert len(opened["value"]["text"]) < 20_000


def test_a_group_with_offsets_in_a_transaction_says_so_and_has_both_lags(
    run: Run, servers: str, cluster: WatchedCluster, topic: str, unique: Unique
) -> None:
    group_id, id_ = unique("billing<b>"), unique("sink")
    write(producer_of(servers), topic, *[b"x"] * 10)
    commit_offsets(servers, group_id, {(topic, 0): 4})
    producer = producer_of(servers, id_)
    producer.begin_transaction()
    write(producer, topic, b"open", b"open")
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group_id})
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 8)], consumer.consumer_group_metadata(), TIMEOUT_S)
    document = groups.ask_group(cluster, {"group_id": group_id}, {})
    (row,) = document["partitions"]["rows"]
    assert without(row, "waits_for", "member_id") == {
        "topic": topic,
        "partition": 0,
        "committed_offset": 4,
        "is_pending": True,
        "last_stable_offset": 10,
        "high_watermark": 12,
        "lag_to_lso": 6,
        "lag_to_high_watermark": 8,
        "is_waiting": True,
    }
    assert row["waits_for"]["transactional_id"] == id_
    assert document["offsets_wait_for"]["transactional_id"] == id_
    assert (document["pending_count"], document["waiting_count"], document["member_count"]) == (1, 1, 0)
    listed = groups.ask_groups(cluster, {}, {"search": group_id})
    (found,) = listed["rows"]
    assert (found["waiting_count"], found["pending_count"], found["lag_to_lso"]) == (1, 1, 6)
    producer.commit_transaction(TIMEOUT_S)
    await_marker(run, topic, 12)
    while groups.ask_group(cluster, {"group_id": group_id}, {})["pending_count"]:
        pass  # Apache Kafka answers EndTxn before it writes the markers.
    (row,) = groups.ask_group(cluster, {"group_id": group_id}, {})["partitions"]["rows"]
    assert (row["committed_offset"], row["is_waiting"], row["lag_to_lso"]) == (8, False, 5)
    consumer.close()


def test_a_group_that_is_not_there_is_named_with_those_that_look_like_it(
    servers: str, cluster: WatchedCluster, topic: str, unique: Unique
) -> None:
    group_id = unique("settlements")
    commit_offsets(servers, group_id, {(topic, 0): 0})
    with pytest.raises(SubjectNotFound, match=rf"there is no group {group_id}x\n\nhint: did you mean {group_id}"):
        groups.ask_group(cluster, {"group_id": f"{group_id}x"}, {})
