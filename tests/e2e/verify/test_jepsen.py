"""What Jepsen's reports on Kafka and on systems like it describe, set up here; the verifier has to say the same.

The reports: Bufstream 0.1.0 (2024), which has the anomalies of Kafka's own protocol (KAFKA-17754), and Redpanda 21.10.1
(2022). Broken brokers after their findings are in `mutants.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.client.admin.offsets import OffsetToCommit
from fencepost.client.admin.partitions import READ_COMMITTED
from fencepost.client.client import KafkaClient
from fencepost.protocol.transaction_version import TV1, TV2, TransactionVersion
from fencepost.verify.history import SendOffsets
from fencepost.verify.workload.notes import now
from fencepost.verify.workload.producer import Abortable
from fencepost.verify.workload.reading import fetch_once
from tests.e2e.conftest import StartBroker, Target
from tests.e2e.verify.mutants import MutantBroker
from tests.e2e.verify.reordering import told_on


def version_of(target: Target) -> TransactionVersion:
    return TV2 if target.version >= 2 else TV1


def test_a_late_commit_is_an_aborted_read_with_version_1_and_nothing_with_version_2(
    target: Target, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """Bufstream 0.1.0, KAFKA-17754: "aborted read"."""
    with told_on(target.servers, tmp_path, unique("jepsen"), version_of(target)) as story:
        story.send(first := story.begin(), 0)
        late = story.end_twice(first, commit=True)
        story.send(second := story.begin(), 0)
        late.let_go()
        late.reply()
        story.end(second, commit=False)
        found = story.anomalies()
    if target.version >= 2:
        assert found == []
        return
    assert [anomaly.kind for anomaly in found] == ["late-EndTxn"]
    assert "aborted read (G1a)" in found[0].what


def test_a_late_abort_tears_a_transaction_with_version_1_and_does_nothing_with_version_2(
    target: Target, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """Bufstream 0.1.0, KAFKA-17754: "torn transaction"."""
    with told_on(target.servers, tmp_path, unique("jepsen"), version_of(target)) as story:
        story.send(first := story.begin(), 0)
        late = story.end_twice(first, commit=False)
        story.send(second := story.begin(), 0)
        late.let_go()
        late.reply()
        story.send(second, 1)
        story.end(second, commit=True)
        found = story.anomalies()
    if target.version >= 2:
        assert found == []
        return
    assert [anomaly.kind for anomaly in found] == ["late-EndTxn"]
    assert "torn transaction (torn-transaction)" in found[0].what


def test_a_late_abort_loses_all_records_of_a_commit_with_version_1_and_none_with_version_2(
    target: Target, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """Bufstream 0.1.0, KAFKA-17754: "write loss". The log cannot prove that the abort was late: it keeps its name."""
    with told_on(target.servers, tmp_path, unique("jepsen"), version_of(target)) as story:
        story.send(source := story.begin(), 1)
        story.end(source, commit=True)
        story.send(first := story.begin(), 0)
        late = story.end_twice(first, commit=False)
        second = story.begin()
        story.send(second, 0, source=(story.topic, 1, 0))
        late.let_go()
        late.reply()
        offset = OffsetToCommit(story.topic, 1, 1)
        story.notes.note(SendOffsets(now(), story.notes.by, second, story.group, [(story.topic, 1, 1)]))
        story.producer.transaction.commit_offsets(story.group, [offset])
        story.end(second, commit=True)
        found = {anomaly.kind for anomaly in story.anomalies()}
    assert found == (set() if target.version >= 2 else {"lost-write"})


def test_a_late_produce_joins_the_next_transaction_with_version_1_and_is_refused_with_version_2(
    target: Target, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """KIP-890: "a message from a previous (aborted) transaction become[s] part of the next transaction"."""
    with told_on(target.servers, tmp_path, unique("jepsen"), version_of(target)) as story:
        story.send(first := story.begin(), 1)
        late = story.send_late(first, 0)
        story.end(first, commit=False)
        second = story.begin()
        if target.version < 2:
            story.producer.add(story.topic, 0)
        late.let_go()
        late.reply()
        story.send(second, 0)
        story.end(second, commit=True)
        found = story.anomalies()
    if target.version >= 2:
        assert found == []
        return
    assert [anomaly.kind for anomaly in found] == ["late-Produce"]
    assert "aborted read (G1a)" in found[0].what


@pytest.mark.parametrize("version", [TV1, TV2], ids=["TV1", "TV2"])
def test_a_late_produce_stops_the_last_stable_offset_without_verification(
    start_broker: StartBroker, tmp_path: Path, version: TransactionVersion
) -> None:
    """KIP-890's hanging transaction, which makes consumers stuck. Brokers verify writes since Apache Kafka 3.6."""
    broker = start_broker(transaction_version=str(int(version)), transaction_partition_verification_enable="false")
    with told_on(broker.bootstrap_servers, tmp_path, "jepsen", version) as story:
        story.send(first := story.begin(), 1)
        late = story.send_late(first, 0)
        story.end(first, commit=False)
        late.let_go()
        late.reply()
        found = [anomaly.kind for anomaly in story.anomalies()]
    assert found == ([] if version is TV2 else ["stuck-LSO"])


def test_a_sequence_number_that_is_used_twice_loses_a_record_of_version_1_on_apache_kafka_and_is_refused_here(
    target: Target, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """Not of a report: librdkafka 2.16 does this after an abort, if a Produce was not answered."""
    with told_on(target.servers, tmp_path, unique("reused"), version_of(target)) as story:
        story.send_unheard(first := story.begin(), 0)
        story.end(first, commit=False)
        story.send(second := story.begin(), 1)
        refused = ""
        try:
            story.send(second, 0)
        except Abortable as e:
            refused = e.error
        story.end(second, commit=not refused)
        found = [anomaly.kind for anomaly in story.anomalies()]
    refuses = target.name == "fencepost TV1"
    assert refused == ("OUT_OF_ORDER_SEQUENCE_NUMBER" if refuses else "")
    assert found == (["reused-sequence"] if target.name == "apache TV1" else [])


@pytest.mark.parametrize("mutant", [None, "lso-too-far"])
def test_transactions_that_read_each_other_are_a_circular_information_flow(mutant: str | None, tmp_path: Path) -> None:
    """Redpanda 21.10.1: "circular information flow" (G1c)."""
    with (
        MutantBroker(mutant) as broker,
        KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client,
        told_on(broker.bootstrap_servers, tmp_path, "jepsen", TV2) as story,
    ):
        other = story.beside("other")
        story.send(first := story.begin(), 0)
        other.send(second := other.begin(), 1)
        # Each makes an output from a record of the other, if it can read it.
        for reader, txn, partition in ((story, first, 1), (other, second, 0)):
            read = fetch_once(client, story.topic, partition, 0, READ_COMMITTED)
            for offset, _ in read.records[:1]:
                reader.send(txn, 1 - partition, source=(story.topic, partition, offset))
        story.end(first, commit=True)
        other.end(second, commit=True)
        found = {anomaly.kind for anomaly in story.anomalies()}
    assert found == ({"G1c"} if mutant is not None else set())
