"""What is collected again and again is what a first look finds."""

from __future__ import annotations

from pathlib import Path

from fencepost.client.client import KafkaClient
from fencepost.diagnose.collect.timeline import Timelines
from fencepost.diagnose.timeline.timeline import Timeline, diagnose_timeline
from fencepost.testing import Broker
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
        assert steps() == ["1 record", "ABORT marker"]


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
            broker.restart()
