"""An open transaction holds back the last stable offset (LSO), and so every read_committed reader of the partition.

A producer opens a transaction and stops. Another producer continues to write to the partition. A read_uncommitted
reader sees all records at once. A read_committed reader waits until the transaction's timeout passes
(transaction.timeout.ms) and the coordinator aborts the transaction. The reader waits even for records that do not
belong to the open transaction.
"""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from fencepost.demo.orders import OrderProducer, new_run_id
from fencepost.demo.report import Check, DemoFailed, Progress, Report, Section
from fencepost.demo.stage import COMMAND_LINE, Stage
from fencepost.demo.topics import QUIET, REQUEST_TIMEOUT_S, SEE_LOG, SILENT, STALE_METADATA, Topics, isolation
from fencepost.protocol.topic_partition import TopicPartition as PartitionAddress

TOPIC = "brew.isolation.v1"
BEFORE, INSIDE, BEHIND = "before", "inside", "behind"
# The interval at which the demo's broker checks for timed-out transactions. Kafka's default is ten seconds.
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}
PATIENCE_S = 60.0


def play_isolation(bootstrap_servers: str, timeout_ms: int, progress: Progress, stage: Stage = COMMAND_LINE) -> Report:
    run_id = new_run_id()
    topics = Topics(bootstrap_servers, [TOPIC])
    topics.create()
    start = topics.await_stable()
    partition = min(start)

    quick = OrderProducer(bootstrap_servers, f"{run_id}-quick")
    quick.init_transactions()
    _commit(quick, BEFORE)
    stage.step("A quick producer registers, writes one record and commits it. Every reader sees it.")
    pinned_at = topics.await_stable()[partition]
    stuck = OrderProducer(bootstrap_servers, f"{run_id}-stuck", **{"transaction.timeout.ms": timeout_ms}, **SILENT)
    stuck.init_transactions()
    stuck.begin()
    opened = time.monotonic()
    stuck.send([(TOPIC, "in a transaction without an end")], INSIDE)
    stage.step(
        f"A second producer writes a record at offset {pinned_at} and stops. Its transaction stays open and pins the "
        "last stable offset (LSO) there."
    )
    _commit(quick, BEHIND)
    stage.step("The quick producer writes and commits another record behind it.")
    progress(f"a transaction is open at offset {pinned_at}; a later transaction was committed")

    # Two records and a marker. A broker may answer EndTxn before it has written the marker, as Apache Kafka does.
    high_watermark = topics.await_end(partition, pinned_at + 3)
    lso = topics.ends(committed=True)[partition]
    uncommitted = [record.key for record in topics.read(start, committed=False)]
    committed = [record.key for record in topics.read(start, committed=True)]
    looked_ms = round((time.monotonic() - opened) * 1000)
    if looked_ms >= timeout_ms:
        raise DemoFailed(
            f"reading during the open transaction took {looked_ms} ms, and its timeout is {timeout_ms} ms",
            f"this machine needs more time: --timeout {max(1, round(looked_ms * 5 / 1000))}s",
        )
    progress(f"read_uncommitted sees {len(uncommitted)} records; read_committed sees {len(committed)} and waits")
    stage.step(
        f"read_uncommitted gets {', '.join(uncommitted)}. read_committed gets {', '.join(committed)} and then waits: "
        f"it reads up to the LSO, which is {lso}, although the high watermark is {high_watermark}."
    )
    with Waiting(bootstrap_servers, partition, pinned_at) as reader:
        stage.let_time_pass(timeout_ms)
        next_key, waited_s = reader.await_next(timeout_ms / 1000 + PATIENCE_S)
    progress(f"the transaction timed out; the reader continued after {waited_s:.1f} s")
    ends = topics.await_stable()[partition], topics.ends(committed=True)[partition]
    stage.step(
        f"transaction.timeout.ms ({timeout_ms} ms) has passed. The coordinator aborted the transaction, the LSO moved "
        f"to {ends[1]}, and read_committed got {next_key}."
    )

    rows: list[tuple[str | int, ...]] = [
        ("transaction open", high_watermark, lso, ", ".join(uncommitted), ", ".join(committed)),
        ("after the timeout", *ends, ", ".join(uncommitted), ", ".join([*committed, next_key])),
    ]
    section = Section(
        "Readers wait for the open transaction",
        [
            "In the log, one committed record is before the open transaction and one is behind it.",
            "read_committed readers get records in the order of the log, up to the last stable offset (LSO).",
            "The LSO cannot pass the first record of an open transaction.",
            f"After {timeout_ms} ms the coordinator aborts the transaction, and the readers continue.",
        ],
        ("moment", "high watermark", "LSO", "read_uncommitted", "read_committed"),
        rows,
        [
            Check("the LSO stays at the first record of the open transaction", pinned_at, lso),
            Check("the high watermark advances by two records and a marker", pinned_at + 3, high_watermark),
            Check("read_uncommitted sees all three records", [BEFORE, INSIDE, BEHIND], uncommitted),
            Check("read_committed sees the record before the open transaction", [BEFORE], committed),
            Check("the next record that read_committed sees, after the timeout", BEHIND, next_key),
            Check("after the timeout, the LSO equals the high watermark", ends[0], ends[1]),
            Check("the commit of the producer that had stopped", "refused", _end_of(stuck)),
        ],
    )
    facts = {
        "run": run_id,
        "bootstrap_servers": bootstrap_servers,
        "transaction_timeout_ms": timeout_ms,
        "waited_s": round(waited_s, 3),
    }
    return Report("isolation", facts, [section])


def _commit(producer: OrderProducer, key: str) -> None:
    producer.begin()
    producer.send([(TOPIC, "committed")], key)
    producer.commit()


def _end_of(stuck: OrderProducer) -> str:
    try:
        stuck.commit()
    except DemoFailed:
        return "refused"
    return "committed"


class Waiting:
    """A read_committed reader that has reached the LSO."""

    def __init__(self, bootstrap_servers: str, partition: PartitionAddress, offset: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "fencepost-demo",
                "isolation.level": isolation(committed=True),
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                **QUIET,
            }
        )
        self._consumer.assign([TopicPartition(*partition, offset)])

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def await_next(self, timeout_s: float) -> tuple[str, float]:
        """The key of the next record, and how many seconds the reader waited for it."""
        since = time.monotonic()
        while (left := since + timeout_s - time.monotonic()) > 0:
            message: Any = self._consumer.poll(min(left, REQUEST_TIMEOUT_S))
            if message is None:
                continue
            error = message.error()
            if error is None:
                return message.key().decode(), time.monotonic() - since
            if error.code() != KafkaError._PARTITION_EOF and error.code() not in STALE_METADATA:
                raise DemoFailed(f"cannot read: {error.str()}", SEE_LOG)
        raise DemoFailed(
            f"the open transaction still holds back the reader after {timeout_s:g} s",
            "the broker may check for timed-out transactions at longer intervals "
            "(transaction.abort.timed.out.transaction.cleanup.interval.ms)",
        )
