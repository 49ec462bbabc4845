"""Histories of a log that makes no mistake are accused of nothing; each mistake that is planted in one is found."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.verify.checkers import check_history
from fencepost.verify.checkers.arranging import arrange
from fencepost.verify.checkers.kinds import KINDS
from fencepost.verify.history import (
    Acked,
    Committed,
    End,
    Event,
    Poll,
    Rest,
    SendOffsets,
    TxnEnded,
    Watermarks,
    WholeLog,
)
from tests.unit.verify.checkers.simulated import Run

SEEDS = st.integers(0, 100_000)
RECORDS = 80
Mutation = Callable[[list[Event], random.Random], None]


def kinds_in(run: Run, events: list[Event]) -> set[str]:
    found = {anomaly.kind for anomaly in check_history(arrange(run.header, events))}
    return {kind for kind in found if not KINDS[kind].is_allowed}


@given(SEEDS)
def test_a_log_without_a_mistake_is_accused_of_nothing(seed: int) -> None:
    run = Run(seed).play(RECORDS)
    assert kinds_in(run, run.events) == set()


# --- mutations: each changes the events in place ---------------------------------------------------------------------


def last_polls(events: list[Event]) -> Iterator[int]:
    """The polls at rest that returned records."""
    rest = next(n for n, event in enumerate(events) if isinstance(event, Rest))
    return (n for n, event in enumerate(events) if n > rest and isinstance(event, Poll) and event.records)


def committed_values(events: list[Event]) -> set[str]:
    ended = {(e.by, e.txn) for e in events if isinstance(e, TxnEnded) and e.outcome == "committed"}
    return {e.value for e in events if isinstance(e, Acked) and (e.by, int(e.value.split(":")[1])) in ended}


def change_poll(events: list[Event], n: int, records: list[list[Any]]) -> None:
    poll = events[n]
    assert isinstance(poll, Poll)
    events[n] = poll._replace(records=records)


def records_of(events: list[Event], n: int) -> list[list[Any]]:
    poll = events[n]
    assert isinstance(poll, Poll)
    return [list(record) for record in poll.records]


def change_outcome(events: list[Event], n: int, outcome: str) -> None:
    ended = events[n]
    assert isinstance(ended, TxnEnded)
    events[n] = ended._replace(outcome=outcome)


def drop_a_record(events: list[Event], rng: random.Random) -> None:
    """At rest, and from all reads before it, so that it is missing for ever."""
    value = rng.choice(sorted(committed_values(events)))
    for n, event in enumerate(events):
        if isinstance(event, Poll):
            change_poll(events, n, [list(record) for record in event.records if record[1] != value])


def forget_a_record(events: list[Event], rng: random.Random) -> None:
    """At rest only."""
    n = rng.choice(list(last_polls(events)))
    records = records_of(events, n)
    del records[rng.randrange(len(records))]
    change_poll(events, n, records)


def double_a_record(events: list[Event], rng: random.Random) -> None:
    n = rng.choice(list(last_polls(events)))
    records = records_of(events, n)
    records.append([records[-1][0] + 10_000, rng.choice(records)[1]])
    change_poll(events, n, records)


def change_a_record(events: list[Event], rng: random.Random) -> None:
    n = rng.choice(list(last_polls(events)))
    records = records_of(events, n)
    records[rng.randrange(len(records))][1] = "nonsense"
    change_poll(events, n, records)


def read_again(events: list[Event], rng: random.Random) -> None:
    n = rng.choice(list(last_polls(events)))
    records = records_of(events, n)
    change_poll(events, n, [*records, rng.choice(records)])


def abort_what_is_read(events: list[Event], rng: random.Random) -> None:
    """The answer says that a transaction is aborted, which the log has committed."""
    values = committed_values(events)
    owners = {(value.split(":")[0], int(value.split(":")[1])) for value in values}
    ended = [n for n, e in enumerate(events) if isinstance(e, TxnEnded) and (e.by, e.txn) in owners]
    n = rng.choice(ended)
    change_outcome(events, n, "aborted")


def commit_what_is_aborted(events: list[Event], rng: random.Random) -> None:
    """The answer says that a transaction is committed, which the log has aborted."""
    sent = {(e.by, int(e.value.split(":")[1])) for e in events if isinstance(e, Acked)}
    aborted = ((n, e) for n, e in enumerate(events) if isinstance(e, TxnEnded) and e.outcome == "aborted")
    ended = [n for n, e in aborted if (e.by, e.txn) in sent]
    n = rng.choice(ended)
    change_outcome(events, n, "committed")


def ask_late(events: list[Event], rng: random.Random) -> None:
    """The commit is asked for after the record was read."""
    values = committed_values(events)
    owners = {(value.split(":")[0], int(value.split(":")[1])) for value in values}
    ends = [n for n, e in enumerate(events) if isinstance(e, End) and (e.by, e.txn) in owners]
    n = rng.choice(ends)
    events[n] = events[n]._replace(at=events[-1].at + 1)


def swap_offsets(events: list[Event], rng: random.Random) -> None:
    """Two records that were acknowledged one after the other change their places in the log."""
    acks = [(n, e) for n, e in enumerate(events) if isinstance(e, Acked)]
    (n, first), (m, second) = next(
        (a, b) for a in acks for b in reversed(acks) if (a[1].topic, a[1].partition) == (b[1].topic, b[1].partition)
    )
    places = {first.value: second.offset, second.value: first.offset}
    events[n], events[m] = first._replace(offset=second.offset), second._replace(offset=first.offset)
    for k, event in enumerate(events):
        if isinstance(event, Poll):
            change_poll(events, k, sorted([places.get(value, offset), value] for offset, value in event.records))
        elif isinstance(event, WholeLog):
            entries = [[places.get(e[2], e[0]), *e[1:]] for e in event.entries]
            events[k] = event._replace(entries=sorted(entries, key=lambda entry: entry[0]))


def set_the_group_back(events: list[Event], rng: random.Random) -> None:
    n = next(n for n, event in enumerate(events) if isinstance(event, Committed))
    answer = events[n]
    assert isinstance(answer, Committed)
    [topic, partition, offset] = answer.offsets[0]
    events[n] = answer._replace(offsets=[[topic, partition, offset - 1]])


def set_the_group_forward(events: list[Event], rng: random.Random) -> None:
    n = next(n for n, event in enumerate(events) if isinstance(event, Committed))
    answer = events[n]
    assert isinstance(answer, Committed)
    highest = max(o[2] for e in events if isinstance(e, SendOffsets) for o in e.offsets)
    events[n] = answer._replace(offsets=[["tea", 0, highest + 1]])


def hold_the_last_stable_offset(events: list[Event], rng: random.Random) -> None:
    n = rng.choice([n for n, event in enumerate(events) if isinstance(event, Watermarks)])
    marks = events[n]
    assert isinstance(marks, Watermarks)
    events[n] = marks._replace(high_watermark=marks.last_stable_offset + 1)


def let_a_zombie_write(events: list[Event], rng: random.Random) -> None:
    """A record of an epoch that is older than those before it."""
    n = rng.choice([n for n, event in enumerate(events) if isinstance(event, WholeLog) and len(event.entries) > 1])
    log = events[n]
    assert isinstance(log, WholeLog)
    offset, _, _, producer_id, epoch = log.entries[-1]
    events[n] = log._replace(entries=[*log.entries, [offset + 1, "data", "zombie", producer_id, epoch - 1]])


MUTATIONS: list[tuple[Mutation, set[str]]] = [
    (drop_a_record, {"lost-write", "torn-transaction"}),
    (forget_a_record, {"lost-write", "torn-transaction", "poll-skip", "G1b"}),
    (double_a_record, {"duplicate"}),
    (change_a_record, {"invented"}),
    (read_again, {"nonmonotonic-poll"}),
    (abort_what_is_read, {"G1a"}),
    (commit_what_is_aborted, {"lost-write"}),
    (ask_late, {"precommitted-read"}),
    (swap_offsets, {"nonmonotonic-send"}),
    (set_the_group_back, {"offsets-behind"}),
    (set_the_group_forward, {"offsets-ahead"}),
    (hold_the_last_stable_offset, {"stuck-LSO"}),
    (let_a_zombie_write, {"fenced-write"}),
]


@pytest.mark.parametrize(("mutate", "kinds"), MUTATIONS, ids=[mutate.__name__ for mutate, _ in MUTATIONS])
@settings(max_examples=25)
@given(seed=SEEDS)
def test_a_planted_mistake_is_found(mutate: Mutation, kinds: set[str], seed: int) -> None:
    run = Run(seed).play(RECORDS)
    events = list(run.events)
    mutate(events, random.Random(seed))
    assert kinds_in(run, events) & kinds
