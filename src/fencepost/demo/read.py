"""Reads topics from their beginning with one isolation level, and prints the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from fencepost.demo.report import Check, DemoFailed, Report, Section
from fencepost.demo.topics import QUIET, REQUEST_TIMEOUT_S, SEE_LOG, STALE_METADATA, Offsets, Seen, Topics, isolation
from fencepost.protocol.topic_partition import TopicPartition as PartitionAddress


def play_read(
    bootstrap_servers: str,
    names: Sequence[str],
    committed: bool,
    count: int,
    idle_s: float,
    tell: Callable[[str], None],
) -> Report:
    """Read up to `count` records: those that exist at the start, and later records until none arrived for `idle_s`.

    `tell` is called for each record.
    """
    topics = Topics(bootstrap_servers, names)
    topics.require()
    readable = topics.ends(committed)
    partitions = list(readable)
    seen = _read(bootstrap_servers, readable, committed, count, idle_s, tell)
    # Ask after reading, because both offsets only grow. Ask for the LSO last: otherwise a record written between the
    # two requests would look like a record that an open transaction holds back.
    ends = topics.ends()
    stable = topics.ends(committed=True)
    limits = stable if committed else ends
    too_far = [str(record) for record in seen if record.offset >= limits[record.topic, record.partition]]
    by_topic = Counter(record.topic for record in seen)
    held = [f"{t}-{p} from offset {stable[t, p]} to {ends[t, p]}" for t, p in partitions if stable[t, p] < ends[t, p]]
    sentences = [f"{len(seen)} records, {isolation(committed)}."]
    if held:
        sentences.append(f"An open transaction holds back the last stable offset: {', '.join(held)}.")
    section = Section(
        "What this reader sees",
        sentences,
        ("topic", "records"),
        [(name, by_topic[name]) for name in names],
        [
            Check("offsets increase in each partition", [], _out_of_order(seen)),
            Check(f"no record is beyond the {'last stable offset' if committed else 'high watermark'}", [], too_far),
        ],
    )
    facts = {
        "bootstrap_servers": bootstrap_servers,
        "isolation": isolation(committed),
        "records": [record._asdict() for record in seen],
    }
    return Report("read", facts, [section])


def _read(
    bootstrap_servers: str, readable: Offsets, committed: bool, count: int, idle_s: float, tell: Callable[[str], None]
) -> list[Seen]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "fencepost-demo",
            "isolation.level": isolation(committed),
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    seen: list[Seen] = []
    # A reader that is still connecting is not idle, so it waits for the records that already exist.
    behind: set[tuple[str | None, int | None]] = {place for place, end in readable.items() if end > 0}
    try:
        consumer.assign([TopicPartition(t, p, OFFSET_BEGINNING) for t, p in readable])
        while len(seen) < count:
            message = consumer.poll(max(idle_s, REQUEST_TIMEOUT_S) if behind else idle_s)
            if message is None and behind:
                raise DemoFailed(
                    f"no answer from {bootstrap_servers} for {max(idle_s, REQUEST_TIMEOUT_S):g} s while reading",
                    "is the broker still running?",
                )
            if message is None:
                break
            error = message.error()
            if error is None:
                seen.append(_seen_of(message))
                tell(str(seen[-1]))
            elif error.code() == KafkaError._PARTITION_EOF:
                behind.discard((message.topic(), message.partition()))
            elif error.code() not in STALE_METADATA:
                raise DemoFailed(f"cannot read: {error.str()}", SEE_LOG)
    finally:
        consumer.close()
    return seen


def _seen_of(message: Any) -> Seen:
    """Unlike `seen_of`, accepts keys and values that are not text."""
    key, value = (part.decode(errors="replace") for part in (message.key() or b"", message.value() or b""))
    return Seen(message.topic(), message.partition(), message.offset(), key, value)


def _out_of_order(seen: Sequence[Seen]) -> list[str]:
    last: dict[PartitionAddress, int] = {}
    wrong = []
    for record in seen:
        if record.offset <= last.get((record.topic, record.partition), -1):
            wrong.append(str(record))
        last[record.topic, record.partition] = record.offset
    return wrong
