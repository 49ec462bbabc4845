"""The Java client against the broker: the reference, and the one that Spark's Kafka source uses. It speaks TV2.

Each program in `java/` plays several stories in one run and prints a fact a line; a test is a claim about one
story. Apache Kafka 4.3.1 makes the programs print the same, apart from what is said not to wait for markers.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fencepost.testing import Broker
from tests.e2e.clients.confluent import create, producer_of, read
from tests.e2e.conftest import StartBroker
from tests.engines.java import run_java, start_java

pytestmark = pytest.mark.java

PROGRAMS = Path(__file__).parent / "java"
Unique = Callable[[str], str]
Report = dict[str, str]


def report_of(program: str, broker: Broker, prefix: str, *arguments: str) -> Report:
    """Run one of the programs to its end; the facts that it printed."""
    lines = run_java(PROGRAMS / f"{program}.java", broker.bootstrap_servers, f"{prefix}-", *arguments).splitlines()
    return dict(line.split("=", 1) for line in lines)


def story(report: Report, name: str) -> Report:
    return {fact.removeprefix(f"{name}."): value for fact, value in report.items() if fact.startswith(f"{name}.")}


@pytest.fixture(scope="module")
def prefix(unique: Unique) -> str:
    return unique("java")


@pytest.fixture(scope="module")
def administration(broker: Broker, prefix: str) -> Report:
    return report_of("Administration", broker, prefix)


@pytest.fixture(scope="module")
def groups(broker: Broker, unique: Unique) -> Report:
    return report_of("Groups", broker, unique("java"))


# --- administration ---------------------------------------------------------------------------------------


def test_topics_are_created_grown_described_and_deleted(administration: Report) -> None:
    assert story(administration, "topics") == {
        "created": "2 partitions, 1 replica",
        "createdId": "true",
        "again": "TopicExistsException",
        "grown": "5",
        "shrunk": "InvalidPartitionsException",
        "retention": "123456 DYNAMIC_TOPIC_CONFIG",
        "illegal": "InvalidTopicException",
        "unknownConfig": "InvalidConfigurationException",
        "deleted": "true",
        "deletedAgain": "UnknownTopicOrPartitionException",
    }


def test_the_cluster_describes_itself_and_its_transaction_version(administration: Report) -> None:
    assert story(administration, "cluster") == {"nodes": "1", "idLength": "22", "transactionVersion": "2"}


def test_offsets_are_listed_by_isolation_level_and_time(administration: Report) -> None:
    assert story(administration, "offsets") == {
        "earliest": "0",
        "latest": "3",
        "stable": "2",
        "maxTimestamp": "1",
        "byTime": "1",
    }


def test_groups_and_their_offsets_are_shown_and_set(administration: Report) -> None:
    assert story(administration, "groups") == {
        "unknown": "GroupIdNotFoundException",
        "offset": "7",
        "state": "Empty",
        "listed": "true",
    }


def test_an_open_transaction_is_described_by_its_coordinator_and_its_partition(
    administration: Report, prefix: str
) -> None:
    assert story(administration, "open") == {
        "unknown": "TransactionalIdNotFoundException",
        "before": "Empty [] OptionalLong.empty",
        "during": f"Ongoing [{prefix}-open-0] epoch 0 timeout 54321 started true",
        "producer": "same id true epoch 0 sequence 0 from OptionalLong[0] coordinator OptionalInt.empty",
        "after": "epoch 1 sequence -1 from OptionalLong.empty coordinator OptionalInt[0]",
    }


def test_transactions_are_listed_by_id_pattern_state_and_duration(administration: Report) -> None:
    assert story(administration, "listed") == {
        "byId": "[listed-open]",
        "byPattern": "[listed-idle, listed-open]",
        "byHalfAPattern": "[]",
        "byState": "[listed-open]",
        # An idle id has never begun, which is longer ago than any duration.
        "byDuration": "[listed-idle]",
        "badPattern": "InvalidRegularExpression",
    }


def test_an_administrator_can_fence_a_producer(administration: Report) -> None:
    assert story(administration, "fence") == {
        "epoch": "2",
        "state": "Empty",
        "commit": "ProducerFencedException",
    }


def test_an_administrator_can_abort_a_transaction_on_one_partition(administration: Report) -> None:
    assert story(administration, "abort") == {
        "stableBefore": "0",
        "stableAfter": "2",
        "from": "OptionalLong.empty",
        "state": "Ongoing",
    }


# --- groups -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignor", "revoked"), [("Range", 6), ("RoundRobin", 6), ("Sticky", 6), ("CooperativeSticky", 3)]
)
def test_partitions_move_as_consumers_come_and_go_and_each_record_is_read_once(
    groups: Report, assignor: str, revoked: int
) -> None:
    assert story(groups, assignor) == {
        # A cooperative member gives up only what it loses.
        "revokedByAJoin": str(revoked),
        "records": "120 read, 120 different",
    }


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(groups: Report) -> None:
    assert story(groups, "static") == {"same": "true", "revoked": "0"}


# --- consume, process, produce ----------------------------------------------------------------------------

COUNT = 600


@contextmanager
def processing(broker: Broker, pause_ms: int = 0) -> Iterator[subprocess.Popen[str]]:
    """The program that moves COUNT records from `source` to `target`, twenty a transaction."""
    arguments = (broker.bootstrap_servers, "source", "target", "app", str(COUNT), str(pause_ms))
    program = start_java(PROGRAMS / "ConsumeProcessProduce.java", *arguments)
    try:
        yield program
    finally:
        program.kill()
        program.communicate()


def send_input(broker: Broker) -> list[str]:
    create(broker, "source", partitions=2)
    create(broker, "target", partitions=2)
    values = [f"order {number:04}" for number in range(COUNT)]
    producer = producer_of(broker)
    for number, value in enumerate(values):
        producer.produce("source", value.encode(), partition=number % 2)
    assert producer.flush(30) == 0
    return values


def await_commits(program: subprocess.Popen[str], count: int) -> None:
    assert program.stdout is not None
    while count:
        line = program.stdout.readline()
        if not line:
            _, stderr = program.communicate()
            pytest.fail(f"the program ended with {program.returncode}\n{stderr}")
        count -= line.startswith("committed")


def finish(program: subprocess.Popen[str]) -> None:
    _, stderr = program.communicate(timeout=60)
    assert program.returncode == 0, stderr


def test_every_record_is_processed_once_while_the_broker_is_killed_three_times(start_broker: StartBroker) -> None:
    broker = start_broker()
    values = send_input(broker)
    with processing(broker, pause_ms=20) as program:
        for _ in range(3):
            await_commits(program, 5)
            assert program.poll() is None
            broker.kill()
            broker.restart()
        finish(program)
    assert sorted(read(broker, "target")) == [value.upper() for value in values]


def test_a_program_is_fenced_when_another_registers_its_id_and_nothing_is_processed_twice(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    values = send_input(broker)
    with processing(broker, pause_ms=1000) as first:
        await_commits(first, 1)
        with processing(broker) as second:
            finish(second)
        first.communicate(timeout=60)
        assert first.returncode == 3
    assert sorted(read(broker, "target")) == [value.upper() for value in values]
