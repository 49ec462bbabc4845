"""An open transaction holds the last stable offset (LSO), and with it every read_committed reader of the partition.

A producer opens a transaction and stands still. Others go on writing behind it. A read_uncommitted reader sees all of
it at once; a read_committed one waits, also for records that have nothing to do with the open transaction, until the
coordinator's patience ends (transaction.timeout.ms) and the transaction is aborted.
"""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from fencepost.demo.orders import OrderProducer, new_run_id
from fencepost.demo.report import Check, DemoFailed, Progress, Report, Section
from fencepost.demo.topics import NEWS_ON_ITS_WAY, QUIET, REQUEST_TIMEOUT_S, SEE_LOG, SILENT, Topics, isolation

TOPIC = "brew.isolation.v1"
BEFORE, INSIDE, BEHIND = "before", "inside", "behind"
# The demo's own broker looks for transactions that are too old this often; Kafka's default is ten seconds.
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}
PATIENCE_S = 60.0


def play_isolation(bootstrap_servers: str, timeout_ms: int, progress: Progress) -> Report:
    run_id = new_run_id()
    topics = Topics(bootstrap_servers, [TOPIC])
    topics.create()
    start = topics.await_stable()
    partition = min(start)

    quick = OrderProducer(bootstrap_servers, f"{run_id}-quick")
    quick.init_transactions()
    _commit(quick, BEFORE)
    pinned_at = topics.await_stable()[partition]
    stuck = OrderProducer(bootstrap_servers, f"{run_id}-stuck", **{"transaction.timeout.ms": timeout_ms}, **SILENT)
    stuck.init_transactions()
    stuck.begin()
    opened = time.monotonic()
    stuck.send([(TOPIC, "in a transaction without an end")], INSIDE)
    _commit(quick, BEHIND)
    progress(f"a transaction is open at offset {pinned_at}; behind it, another was committed")

    # Two records and a marker. A broker may answer EndTxn before it has written the marker, as Apache Kafka does.
    high_watermark = topics.await_end(partition, pinned_at + 3)
    lso = topics.ends(committed=True)[partition]
    uncommitted = [record.key for record in topics.read(start, committed=False)]
    committed = [record.key for record in topics.read(start, committed=True)]
    looked_ms = round((time.monotonic() - opened) * 1000)
    if looked_ms >= timeout_ms:
        raise DemoFailed(
            f"to look at the open transaction took {looked_ms} ms, and its timeout is {timeout_ms} ms",
            f"this machine needs more time: --timeout {max(1, round(looked_ms * 5 / 1000))}s",
        )
    progress(f"read_uncommitted sees {len(uncommitted)} records, read_committed {len(committed)}, and waits")
    with Waiting(bootstrap_servers, partition, pinned_at) as reader:
        next_key, waited_s = reader.await_next(timeout_ms / 1000 + PATIENCE_S)
    progress(f"the transaction timed out, the reader went on after {waited_s:.1f} s")
    ends = topics.await_stable()[partition], topics.ends(committed=True)[partition]

    rows: list[tuple[str | int, ...]] = [
        ("while it is open", high_watermark, lso, ", ".join(uncommitted), ", ".join(committed)),
        ("after its timeout", *ends, ", ".join(uncommitted), ", ".join([*committed, next_key])),
    ]
    section = Section(
        "Who waits for whom",
        [
            "One record was committed before the open transaction, and one behind it.",
            "read_committed gives records in the order of the log, and only up to the last stable offset (LSO).",
            "The LSO cannot pass the first record of an open transaction.",
            f"After {timeout_ms} ms the coordinator aborts it, and all go on.",
        ],
        ("moment", "high watermark", "LSO", "read_uncommitted", "read_committed"),
        rows,
        [
            Check("the LSO stays at the first record of the open transaction", pinned_at, lso),
            Check("the high watermark does not: two records and a marker more", pinned_at + 3, high_watermark),
            Check("read_uncommitted sees all of it", [BEFORE, INSIDE, BEHIND], uncommitted),
            Check("read_committed sees what was before it", [BEFORE], committed),
            Check("the next that read_committed sees, after the timeout", BEHIND, next_key),
            Check("then nothing holds the LSO any more", ends[0], ends[1]),
            Check("the producer that stood still cannot commit", "refused", _end_of(stuck)),
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
    """A read_committed reader at the end of what it may see."""

    def __init__(self, bootstrap_servers: str, partition: tuple[str, int], offset: int) -> None:
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
        """The key of the next record, and how long it took since the reader had nothing more to see."""
        since = time.monotonic()
        while (left := since + timeout_s - time.monotonic()) > 0:
            message: Any = self._consumer.poll(min(left, REQUEST_TIMEOUT_S))
            if message is None:
                continue
            error = message.error()
            if error is None:
                return message.key().decode(), time.monotonic() - since
            if error.code() != KafkaError._PARTITION_EOF and error.code() not in NEWS_ON_ITS_WAY:
                raise DemoFailed(f"cannot read: {error.str()}", SEE_LOG)
        raise DemoFailed(
            f"the open transaction still holds the reader after {timeout_s:g} s",
            "the broker looks for transactions that are too old only so often "
            "(transaction.abort.timed.out.transaction.cleanup.interval.ms)",
        )
