"""What is collected again and again is what a first look finds."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.offsets import commit_offsets
from fencepost.client.admin.partitions import partitions_of
from fencepost.client.client import KafkaClient
from fencepost.diagnose.collect import look as looking
from fencepost.diagnose.collect.timeline import Timelines
from fencepost.diagnose.timeline.timeline import Timeline, diagnose_timeline
from fencepost.testing import Broker
from fencepost.web.cluster import WatchedCluster
from fencepost.web.pages import txn as page
from tests.step_producer import StepProducer

ID, TOPIC = "followed", "orders"


def look(timelines: Timelines, client: KafkaClient) -> Timeline:
    return diagnose_timeline(timelines.collect(client, ID))


def test_a_later_look_finds_what_a_first_look_finds(tmp_path: Path) -> None:
    with (
        Broker(data=tmp_path, topics={TOPIC: 2}) as broker,
        KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client,
    ):
        followed = Timelines()

        def steps() -> list[str]:
            found, fresh = look(followed, client), look(Timelines(), client)
            assert [(s.key, s.name, s.look) for s in found.steps] == [(s.key, s.name, s.look) for s in fresh.steps]
            assert found.rounds == fresh.rounds
            return [s.name for s in found.steps if s.lane.startswith("partition ")]

        assert steps() == []
        producer = StepProducer(client, ID)
        producer.init()
        assert steps() == []
        producer.produce(TOPIC, 0, "one")
        assert steps() == ["1 record"]
        producer.produce(TOPIC, 1, "two", "three")
        assert steps() == ["1 record", "2 records"]
        producer.commit()
        assert steps() == ["1 record", "2 records", "COMMIT marker", "COMMIT marker"]
        assert steps() == ["1 record", "2 records", "COMMIT marker", "COMMIT marker"]
        producer.produce(TOPIC, 0, "four")
        assert steps() == ["1 record"]
        producer.abort()
        assert steps() == ["1 aborted record", "ABORT marker"]


def test_a_cluster_that_was_made_anew_is_read_anew() -> None:
    """A broker in memory forgets everything when it restarts, and keeps its port."""
    followed = Timelines()
    with Broker(topics={TOPIC: 1}) as broker:
        for value in ("one", "two"):
            with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
                producer = StepProducer(client, ID)
                producer.init()
                producer.produce(TOPIC, 0, value)
                producer.commit()
                found = look(followed, client)
                assert len(found.rounds) == 1
                assert found.rounds == look(Timelines(), client).rounds
            broker.stop()
            broker.start()


def test_large_records_of_others_before_a_transaction_do_not_hide_its_steps() -> None:
    """As the offsets of groups with long names do in `__consumer_offsets`."""
    with (
        Broker(settings={"offsets.topic.num.partitions": "1"}, topics={TOPIC: 40}) as broker,
        KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client,
    ):
        commit_offsets(client, "g" * 30_000, {(TOPIC, partition): 7 for partition in range(40)})
        producer = StepProducer(client, ID)
        producer.init()
        producer.commit_offset("group", TOPIC, 0, 7)
        producer.commit()
        found = look(Timelines(), client)
        assert [s.name for s in found.steps if s.lane.startswith("partition ")] == ["1 offset", "COMMIT marker"]
        assert found.problems == ()


def test_a_partition_whose_offsets_are_unknown_is_named() -> None:
    with (
        Broker(topics={TOPIC: 1}) as broker,
        KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client,
    ):
        producer = StepProducer(client, ID)
        producer.init()
        producer.produce(TOPIC, 0, "one")
        producer.commit()
        complete = look(Timelines(), client)
        for skip in range(4, 9):  # The first four questions are about the log of transactions.
            fault = broker.faults.inject_error("ListOffsets", "UNKNOWN_SERVER_ERROR", skip=skip)
            timelines = Timelines()
            found = look(timelines, client)
            is_asked = fault.hits > 0
            assert is_asked is any(f"{TOPIC}-0" in problem for problem in found.problems), (skip, found.problems)
            assert is_asked is (found.steps != complete.steps)
            broker.faults.clear()
            assert look(timelines, client) == complete
        assert not is_asked


def test_the_pages_of_all_ids_share_one_search_of_the_cluster_and_miss_nothing_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches = 0

    def counted(client: KafkaClient) -> list[NamedPartition]:
        nonlocal searches
        searches += 1
        return partitions_of(client)

    monkeypatch.setattr(looking, "partitions_of", counted)
    with (
        Broker(topics={TOPIC: 2}) as broker,
        KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client,
        closing(WatchedCluster(lambda: KafkaClient({"bootstrap.servers": broker.bootstrap_servers}))) as cluster,
    ):
        # A search of this cluster is as good as new for the whole test.
        recent = cluster.recent
        monkeypatch.setattr(cluster, "recent", lambda collect: recent(collect, max_age_s=600.0))
        producers = [StepProducer(client, id_) for id_ in (ID, "other")]
        for producer in producers:
            producer.init()
            page.ask(cluster, {"transactional_id": producer.transaction.transactional_id}, {})
        producers[0].produce(TOPIC, 1, "one")
        held = page.ask(cluster, {"transactional_id": ID}, {})
        assert [f"{b['topic']}-{b['partition']}" for b in held["explanation"]["blocks"]] == ["orders-1"]
        producers[0].commit()
        assert page.ask(cluster, {"transactional_id": ID}, {})["explanation"]["hanging"] == []
        assert searches == 1


def test_a_transaction_on_a_topic_that_is_younger_than_the_shared_search_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        Broker(topics={TOPIC: 1}) as broker,
        KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client,
        closing(WatchedCluster(lambda: KafkaClient({"bootstrap.servers": broker.bootstrap_servers}))) as cluster,
    ):
        # As on a cluster that answers slowly.
        recent = cluster.recent
        monkeypatch.setattr(cluster, "recent", lambda collect: recent(collect, max_age_s=600.0))
        producer = StepProducer(client, ID)
        producer.init()
        page.ask(cluster, {"transactional_id": ID}, {})
        broker.create_topic("younger")
        producer.produce("younger", 0, "one")
        producer.commit()
        timeline = page.ask(cluster, {"transactional_id": ID}, {})["timeline"]
        assert [s["name"] for s in timeline["steps"] if s["lane"] == "partition younger-0"] == [
            "1 record",
            "COMMIT marker",
        ]
