"""All placements of data, markers and open transactions in a partition, on Apache Kafka and on both our storages.

Compared is what a real consumer reads, and everything that a reader can ask: fetches from every offset with either
isolation level, the aborted transactions they name, ListOffsets by time and isolation level, and DescribeProducers.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from fencepost.testing import Broker
from tests.conformance.placements import TV1, TV2, described, observed, placements
from tests.conformance.test_against_apache_kafka import ApacheTarget
from tests.pure_broker import PureBroker
from tests.wire.raw_client import SocketTarget

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

SHORT = [word for length in range(1, 5) for word in placements(length)]
PREPARE = {"fencepost.endtxn.reply": "prepare"}


@pytest.mark.parametrize("version", [pytest.param(TV1, marks=pytest.mark.engines), TV2])
def test_readers_of_every_short_log_see_the_same(version: int, oracle: ApacheTarget, tmp_path: Path) -> None:
    theirs = observed(oracle, f"short-{version}", SHORT, version)
    assert not described(theirs, observed(PureBroker(), "short", SHORT, version))
    assert not described(theirs, observed(PureBroker(PREPARE), "short", SHORT, version))
    with Broker(data=tmp_path / "data") as broker, SocketTarget(broker.port) as target:
        assert not described(theirs, observed(target, "short", SHORT, version))
        for isolation in ("read_committed", "read_uncommitted"):
            ours = consumed(broker.bootstrap_servers, "short", isolation)
            assert consumed(oracle.kafka.bootstrap_servers, f"short-{version}", isolation) == ours


def consumed(servers: str, topic: str, isolation: str) -> dict[str, list[tuple[int | None, bytes | None]]]:
    """What a real consumer gives to its application, record by record, until there is no more."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": "placements",
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    found: dict[str, list[tuple[int | None, bytes | None]]] = {word: [] for word in SHORT}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(len(SHORT))])
        unfinished = set(range(len(SHORT)))
        deadline = time.monotonic() + 120
        while unfinished:
            assert time.monotonic() < deadline, f"not read to their ends: {[SHORT[index] for index in unfinished]}"
            for message in consumer.consume(500, timeout=1):
                error, partition = message.error(), message.partition()
                assert partition is not None
                if error is None:
                    found[SHORT[partition]].append((message.offset(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(partition)
    finally:
        consumer.close()
    return found


@pytest.mark.engines
@pytest.mark.parametrize("version", [TV1, TV2])
def test_readers_of_every_longer_log_see_the_same(version: int, oracle: ApacheTarget, tmp_path: Path) -> None:
    words = placements(5)
    with Broker(data=tmp_path / "data") as broker, SocketTarget(broker.port) as target:
        ours = observed(target, "longer", words, version)
    assert not described(observed(oracle, f"longer-{version}", words, version), ours)
