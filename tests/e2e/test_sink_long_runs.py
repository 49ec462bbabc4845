"""What a sink meets that runs for long: epochs that run out, another transaction.version, and its own memory.

Without Spark (`sparkless.py`), on this broker and on Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fencepost.client.client import KafkaClient
from fencepost.client.transaction import Transaction
from fencepost.testing import Broker
from tests.e2e.spark.streams import create_topic, is_soon_free
from tests.engines.sparkless import Query, sink_of, use_transaction_version
from tests.readers.reading import read_all

LAST_EPOCH = 32_766
BATCHES = 12
MANY, MOST_GROWTH_BYTES = 600, 100_000

APACHE = pytest.param("apache", marks=[pytest.mark.engines, pytest.mark.java])


@pytest.fixture(params=["fencepost", APACHE])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    kafka: Broker = request.getfixturevalue("broker" if request.param == "fencepost" else "apache")
    yield kafka.bootstrap_servers
    use_transaction_version(kafka.bootstrap_servers, 2)


@pytest.fixture
def query(servers: str, unique: Callable[[str], str], tmp_path: Path) -> Query:
    return Query(tmp_path / "checkpoint", topic=create_topic(servers, unique("epochs"), 1))


def values(servers: str, topic: str) -> list[str]:
    assert is_soon_free(servers, topic)
    return [record.value for record in read_all(servers, [topic])]


@pytest.mark.engines
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", [2, 1])
def test_micro_batches_go_on_when_the_epochs_of_a_producer_have_run_out(
    servers: str, query: Query, version: int
) -> None:
    use_transaction_version(servers, version)
    with KafkaClient({"bootstrap.servers": servers}) as client:
        transaction = Transaction(client, query.topic, 60_000)
        identity = transaction.init()
        while identity.producer_epoch < LAST_EPOCH - BATCHES // 2:
            identity = transaction.renew()
    used = []
    with closing(sink_of(servers, query.checkpoint, transactional_id=query.topic)) as sink:
        for batch_id in range(BATCHES):
            assert query.run(sink, batch_id, [str(batch_id)]) == "committed"
            used.append(sink.recent_progress[-1])
    assert {done.attempts for done in used} == {1}
    assert len({done.producer_id for done in used}) == 2, "the second began where the epochs of the first ended"
    with closing(sink_of(servers, query.checkpoint, transactional_id=query.topic)) as successor:
        assert query.elsewhere().run(successor, BATCHES - 1, ["again"]) == "skipped"
    assert values(servers, query.topic) == [str(batch_id) for batch_id in range(BATCHES)]


def test_micro_batches_go_on_when_the_cluster_changes_the_transaction_version(servers: str, query: Query) -> None:
    done = 0
    for begins_with in (2, 1):
        use_transaction_version(servers, begins_with)
        with closing(sink_of(servers, query.checkpoint, transactional_id=query.topic)) as sink:
            for version in (begins_with, 3 - begins_with, begins_with):
                use_transaction_version(servers, version)
                for _ in range(3):
                    assert query.run(sink, done, [str(done)]) == "committed"
                    done += 1
    assert values(servers, query.topic) == [str(batch_id) for batch_id in range(done)]
