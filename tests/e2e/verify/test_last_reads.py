"""The last reads of a run: a broker that does not answer is not accused, and one that answers without records is."""

from __future__ import annotations

import pytest

from fencepost.client.admin.offsets import commit_offsets
from fencepost.client.admin.topics import create_topic
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.client.producing import produce
from fencepost.protocol.batch import encode_batch
from fencepost.verify.checkers import check_history
from fencepost.verify.checkers.arranging import arrange
from fencepost.verify.history import Acked, Committed, Event, Header, Poll, Rest, Send, WholeLog
from fencepost.verify.workload.last_reads import BY, last_reads
from fencepost.verify.workload.notes import now
from tests.e2e.conftest import StartBroker
from tests.e2e.verify.mutants import EARLY_END, MutantBroker

TOPIC, TOPICS = "orders", {"orders": 1}
# Of so many kilobytes, that a fetch returns a part of them.
RECORDS, KILOBYTES = 8, 400
# The fetch that reads the log, and the first one of a read_committed reader.
PASSING = 2
PATIENCE_S = 1.0


def written(client: KafkaClient, partitions: int = 1) -> list[Event]:
    """Records that were acknowledged, as many in each partition."""
    create_topic(client, TOPIC, partitions, 1)
    events: list[Event] = []
    for number in range(RECORDS * partitions):
        value, partition = f"{number}:".ljust(KILOBYTES << 10, "x"), number % partitions
        events.append(Send(now(), "writer", None, value, TOPIC, partition))
        base = produce(client, TOPIC, partition, encode_batch([(b"k", value.encode())], 1_000))
        events.append(Acked(now(), "writer", value, TOPIC, partition, base))
    return [*events, Rest(now(), BY)]


def read_from(events: list[Event], partition: int) -> int:
    """How many records read_committed readers got."""
    return sum(len(event.records) for event in events if isinstance(event, Poll) and event.partition == partition)


def anomalies(events: list[Event], partitions: int = 1) -> list[str]:
    return [found.kind for found in check_history(arrange(Header(1, {}, {TOPIC: partitions}), events))]


def test_a_partition_that_is_read_in_part_is_not_noted_and_the_broker_is_not_accused(start_broker: StartBroker) -> None:
    broker = start_broker()
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        events = written(client)
        broker.faults.disconnect_on("Fetch", times=None, skip=PASSING, at="request")
        with pytest.raises(ClientError):
            last_reads(client, TOPICS, {}, events.append, patience_s=PATIENCE_S)
    assert not [event for event in events if isinstance(event, Poll | WholeLog)]
    assert anomalies(events) == []


def test_the_last_reads_wait_for_a_broker_that_comes_back(start_broker: StartBroker) -> None:
    broker = start_broker()
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        events = written(client)
        broker.faults.disconnect_on("Fetch", times=40, skip=PASSING, at="request")
        said: list[str] = []
        last_reads(client, TOPICS, {}, events.append, said.append)
    [line] = said
    assert line.startswith("orders-0 cannot be read now; trying again for up to 60 s: ")
    assert read_from(events, 0) == RECORDS
    assert anomalies(events) == []


def test_a_broker_that_answers_without_the_last_records_has_lost_them() -> None:
    with (
        MutantBroker("fetch-ends-early") as broker,
        KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client,
    ):
        events = written(client, partitions=2)
        last_reads(client, {TOPIC: 2}, {}, events.append, patience_s=PATIENCE_S)
    assert (read_from(events, 0), read_from(events, 1)) == (EARLY_END, RECORDS)
    assert anomalies(events, partitions=2) == ["lost-write"] * (RECORDS - EARLY_END)


def test_a_partition_that_cannot_be_read_keeps_neither_other_partitions_nor_groups_from_being_read(
    start_broker: StartBroker,
) -> None:
    with KafkaClient({"bootstrap.servers": start_broker().bootstrap_servers}) as client:
        events = written(client)
        commit_offsets(client, "tills", {(TOPIC, 0): 3})
        with pytest.raises(ClientError, match="missing-0"):
            last_reads(client, {"missing": 1} | TOPICS, {"tills": TOPIC}, events.append, patience_s=PATIENCE_S)
    assert read_from(events, 0) == RECORDS
    assert [event.offsets for event in events if isinstance(event, Committed)] == [[(TOPIC, 0, 3)]]
