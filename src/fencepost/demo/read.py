"""Reads real topics from their beginning, as a reader of one isolation level does, and prints what it gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from fencepost.demo.report import Check, DemoFailed, Report, Section
from fencepost.demo.topics import NEWS_ON_ITS_WAY, QUIET, REQUEST_TIMEOUT_S, SEE_LOG, Offsets, Seen, Topics, isolation


def play_read(
    bootstrap_servers: str,
    names: Sequence[str],
    committed: bool,
    count: int,
    idle_s: float,
    tell: Callable[[str], None],
) -> Report:
    """Up to `count` records, or all that were there at the start and whatever comes until none came for `idle_s`.

    Each is told as it comes.
    """
    topics = Topics(bootstrap_servers, names)
    topics.require()
    readable = topics.ends(committed)
    partitions = list(readable)
    seen = _read(bootstrap_servers, readable, committed, count, idle_s, tell)
    # Asked after reading, since both only grow; and the LSO last, or a record written between the two questions would
    # look like one that waits.
    ends = topics.ends()
    stable = topics.ends(committed=True)
    limits = stable if committed else ends
    too_far = [str(record) for record in seen if record.offset >= limits[record.topic, record.partition]]
    by_topic = Counter(record.topic for record in seen)
    held = [f"{t}-{p} from offset {stable[t, p]} to {ends[t, p]}" for t, p in partitions if stable[t, p] < ends[t, p]]
    sentences = [f"{len(seen)} records, {isolation(committed)}."]
    if held:
        sentences.append(f"An open transaction holds the last stable offset: {', '.join(held)}.")
    section = Section(
        "What this reader sees",
        sentences,
        ("topic", "records"),
        [(name, by_topic[name]) for name in names],
        [
            Check("in each partition, every offset is above the one before", [], _out_of_order(seen)),
            Check(f"nothing from past the {'last stable offset' if committed else 'high watermark'}", [], too_far),
        ],
    )
    facts = {
        "bootstrap_servers": bootstrap_servers,
        "isolation": isolation(committed),
        "records": [record._asdict() for record in seen],
    }
    return Report("read", facts, [section])


def _read(
    bootstrap_servers: str,
    readable: Offsets,
    committed: bool,
    count: int,
    idle_s: float,
    tell: Callable[[str], None],
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
    # A reader that is still connecting is not idle: what is there already is waited for.
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
            elif error.code() not in NEWS_ON_ITS_WAY:
                raise DemoFailed(f"cannot read: {error.str()}", SEE_LOG)
    finally:
        consumer.close()
    return seen


def _seen_of(message: Any) -> Seen:
    """What is in these topics may be anything, also not text."""
    key, value = (part.decode(errors="replace") for part in (message.key() or b"", message.value() or b""))
    return Seen(message.topic(), message.partition(), message.offset(), key, value)


def _out_of_order(seen: Sequence[Seen]) -> list[str]:
    last: dict[tuple[str, int], int] = {}
    wrong = []
    for record in seen:
        if record.offset <= last.get((record.topic, record.partition), -1):
            wrong.append(str(record))
        last[record.topic, record.partition] = record.offset
    return wrong
