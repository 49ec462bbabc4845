"""A timeline shows who did what in a transaction, in the right order, each kind of step with a look of its own."""

from __future__ import annotations

from typing import Any

from fencepost.client.admin.answers import NamedPartition
from fencepost.diagnose.snapshot import LogEntry
from fencepost.diagnose.timeline.rounds import SeenBatch
from fencepost.diagnose.timeline.steps import Look, SourceKind, Step
from fencepost.diagnose.timeline.timeline import (
    LANES_SHOWN,
    Timeline,
    TimelineSnapshot,
    diagnose_timeline,
)
from fencepost.machines.group.offsets import CommittedOffset, OffsetRecord
from fencepost.machines.txn.states import TxnState
from fencepost.protocol import errors
from fencepost.protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader, Marker
from tests.unit.diagnose.snapshots import GROUP_OFFSETS, NOW_MS, ORDERS, described, ends, entry, producer, rpc
from tests.unit.diagnose.snapshots import txn_snapshot as snapshot_of

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, *_ = TxnState
LOG = NamedPartition("__transaction_state", 3)


def data(offset: int, at_ms: int, count: int = 1, **changes: Any) -> SeenBatch:
    """A transactional batch of `orders-sink`; `at_ms` counts from NOW_MS."""
    offsets = changes.pop("offsets", ())
    header = BatchHeader(
        base_offset=offset,
        length=100,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=TRANSACTIONAL,
        last_offset_delta=count - 1,
        base_timestamp=NOW_MS + at_ms,
        max_timestamp=NOW_MS + at_ms,
        producer_id=7,
        producer_epoch=4,
        base_sequence=0,
        record_count=count,
    )
    return SeenBatch(header._replace(**changes), offsets=offsets)


def marker(offset: int, at_ms: int, commit: bool = True, epoch: int = 4) -> SeenBatch:
    header = data(offset, at_ms, attributes=TRANSACTIONAL | CONTROL, producer_epoch=epoch).header
    return SeenBatch(header, Marker(7, epoch, commit, 0, offset, NOW_MS + at_ms))


def committed_offsets(at_ms: int) -> SeenBatch:
    value = CommittedOffset(15, -1, "", NOW_MS + at_ms, -1, bytes(16), 3)
    return data(3, at_ms, offsets=(OffsetRecord("billing", "orders", 0, value),))


def timeline(*history: LogEntry, batches: Any = None, round_key: int | None = None, **changes: Any) -> Timeline:
    txn = changes.pop("txn", described("CompleteCommit", partitions=()))
    return diagnose_timeline(
        TimelineSnapshot(
            txn=snapshot_of(txn, history=history, **changes), log=LOG, round_key=round_key, batches=batches or {}
        )
    )


def looks(found: Timeline) -> list[tuple[str, Look]]:
    return [(step.name, step.look) for step in found.steps]


def named(found: Timeline, name: str) -> Step:
    [step] = [step for step in found.steps if step.name == name]
    return step


COMMIT = (
    entry(EMPTY, -900),
    entry(ONGOING, -800),
    entry(ONGOING, -750, start_ms=-800, partitions={("orders", 0), ("__consumer_offsets", 12)}),
    entry(PREPARE_COMMIT, -700, start_ms=-800, partitions={("orders", 0), ("__consumer_offsets", 12)}),
    entry(COMPLETE_COMMIT, -690, start_ms=-800),
)
BATCHES = {
    ORDERS: (data(40, -790, 3), marker(43, -695)),
    GROUP_OFFSETS: (committed_offsets(-740), marker(4, -694)),
}


def test_a_commit_is_told_from_the_registration_to_the_readers() -> None:
    found = timeline(*COMMIT, batches=BATCHES, ends={ORDERS: ends(44, 44)})
    assert [(step.name, step.lane, step.sender, step.request) for step in found.steps] == [
        ("Empty", "coordinator", "producer 7/4", "InitProducerId"),
        ("Ongoing", "coordinator", "producer 7/4", "AddPartitionsToTxn"),
        ("3 records", "partition orders-0", "producer 7/4", "Produce"),
        ("Ongoing", "coordinator", "producer 7/4", "AddOffsetsToTxn"),
        ("1 offset", "partition __consumer_offsets-12", "producer 7/4", "TxnOffsetCommit"),
        ("PrepareCommit", "coordinator", "producer 7/4", "EndTxn"),
        ("COMMIT marker", "partition orders-0", "coordinator", "WriteTxnMarkers"),
        ("COMMIT marker", "partition __consumer_offsets-12", "coordinator", "WriteTxnMarkers"),
        ("CompleteCommit", "coordinator", None, None),
        ("readers get the records", "readers", None, None),
    ]
    assert [lane.title for lane in found.lanes] == [
        "producer", "coordinator", "orders-0", "__consumer_offsets-12", "readers",
    ]  # fmt: skip
    assert found.way == ("Empty", "Ongoing", "Ongoing", "PrepareCommit", "CompleteCommit")
    assert [step.sentence for step in found.steps if step.look is Look.COMMITTED] == [
        "3 records on orders-0, offsets 40 to 42",
        "offsets of group `billing`, which count after a commit: orders-0 at 15",
        "commit decided by its client, after 100 ms",
        "COMMIT marker on orders-0 at offset 43: 3 records before it count",
        "COMMIT marker on __consumer_offsets-12 at offset 4: the offsets are committed now",
        "committed: all markers are written, after 10 ms",
        "readers with read_committed get the records: orders-0, offsets 40 to 42",
    ]


def test_a_write_in_the_millisecond_of_the_next_registration_is_told_before_it() -> None:
    batches = {**BATCHES, ORDERS: (data(40, -750, 3), marker(43, -695))}
    for requests in [(), (rpc("Produce", 750, duration_us=200),)]:
        found = timeline(*COMMIT, batches=batches, rpcs=requests)
        names = [step.name for step in found.steps]
        assert names[:5] == ["Empty", "Ongoing", "3 records", "Ongoing", "1 offset"]


def test_every_step_opens_to_the_record_batch_or_marker_behind_it() -> None:
    found = timeline(*COMMIT, batches=BATCHES)
    opened = {step.name: step.sources[0] for step in found.steps if step.sources}
    assert (opened["PrepareCommit"].kind, opened["PrepareCommit"].where) == (SourceKind.RECORD, LOG)
    assert opened["PrepareCommit"].offset == COMMIT[3].offset
    assert opened["PrepareCommit"].fields["state"] == "PrepareCommit"
    assert (opened["3 records"].kind, opened["3 records"].offset) == (SourceKind.BATCH, 40)
    assert opened["1 offset"].fields["committed_offsets"] == ["group billing: orders-0 at 15"]
    assert (opened["COMMIT marker"].kind, opened["COMMIT marker"].fields["type"]) == (SourceKind.MARKER, "COMMIT")


def test_remembered_requests_are_behind_the_steps_that_they_caused() -> None:
    requests = (
        rpc("InitProducerId", 901, producer_id=-1, producer_epoch=-1, duration_us=2_000),
        rpc("AddPartitionsToTxn", 801, about="orders-0", duration_us=2_000),
        rpc("Produce", 795, duration_us=8_000),
        rpc("EndTxn", 701, about="commit", duration_us=15_000),
    )
    found = timeline(*COMMIT, batches=BATCHES, rpcs=requests)
    behind = {step.name: step.sources[-1].title for step in found.steps if len(step.sources) > 1}
    assert behind == {
        "Empty": "InitProducerId v9: NONE",
        "Ongoing": "AddPartitionsToTxn v9: NONE",
        "3 records": "Produce v9: NONE",
        "PrepareCommit": "EndTxn v9: NONE",
    }
    # No request is left over as a step of its own.
    assert len(found.steps) == len(timeline(*COMMIT, batches=BATCHES).steps)
    assert found.remembers_requests
    assert not timeline(*COMMIT).remembers_requests


def test_with_tv1_only_the_request_that_adds_a_partition_is_behind_its_record() -> None:
    requests = (
        rpc("AddPartitionsToTxn", 800, about="orders-0", duration_us=100),
        rpc("Produce", 800, duration_us=300),
    )
    written = {ORDERS: (data(40, -800),)}
    found = timeline(entry(ONGOING, -800), batches=written, rpcs=requests, txn=described(), producers=HOLDS)
    assert [(step.name, step.request, step.sources[-1].title) for step in found.steps] == [
        ("Ongoing", "AddPartitionsToTxn", "AddPartitionsToTxn v9: NONE"),
        ("1 record", "Produce", "Produce v9: NONE"),
    ]


def test_with_tv2_the_first_of_two_produce_requests_begins_the_transaction() -> None:
    requests = (rpc("Produce", 800, duration_us=300), rpc("Produce", 800, duration_us=400))
    found = timeline(entry(ONGOING, -800, version=2), rpcs=requests, txn=described())
    assert found.steps[0].sources[-1].fields["took"] == "300 us"


def test_with_tv2_one_produce_request_begins_the_transaction_and_writes_the_records() -> None:
    began = entry(ONGOING, -800, version=2)
    sent = rpc("Produce", 802, duration_us=5_000)
    found = timeline(began, batches={ORDERS: (data(40, -803),)}, rpcs=(sent,), txn=described(), producers=HOLDS)
    assert [(step.name, step.request, len(step.sources)) for step in found.steps] == [
        ("Ongoing", "Produce", 2),
        ("1 record", "Produce", 2),
    ]


HOLDS = {ORDERS: (producer(40),)}


def test_readers_wait_for_an_open_transaction() -> None:
    written = {ORDERS: (data(40, -790),)}
    found = timeline(
        entry(ONGOING, -800), batches=written, txn=described(), producers=HOLDS, ends={ORDERS: ends(40, 45)}
    )
    assert looks(found) == [("Ongoing", Look.OPEN), ("1 record", Look.OPEN), ("readers wait", Look.OPEN)]
    assert found.steps[-1].sentence == "readers with read_committed wait on orders-0 at offset 40 (5 behind)"


def ended(*after: LogEntry, prepared: LogEntry, **changes: Any) -> Timeline:
    complete = entry(COMPLETE_ABORT, -490, start_ms=-600, epoch=prepared.txn.producer_epoch if prepared.txn else 0)
    return timeline(entry(ONGOING, -600), prepared, complete, *after, **changes)


def test_an_abort_by_the_client_a_timeout_a_takeover_and_an_order_look_different() -> None:
    by_client = ended(prepared=entry(PREPARE_ABORT, -500, start_ms=-600))
    by_timeout = timeline(
        entry(ONGOING, -62_000),
        entry(PREPARE_ABORT, -500, start_ms=-62_000, epoch=5),
        entry(COMPLETE_ABORT, -490, epoch=5),
    )
    aborted = entry(PREPARE_ABORT, -500, start_ms=-600, epoch=5)
    by_takeover = ended(entry(EMPTY, -480, epoch=6), prepared=aborted)
    by_order = ended(entry(EMPTY, -480, epoch=6, timeout_ms=59_999), prepared=aborted)
    found = {
        name: [step.look.name for step in t.steps if step.name in ("PrepareAbort", "Empty")]
        for name, t in {"client": by_client, "timeout": by_timeout, "new": by_takeover, "order": by_order}.items()
    }
    assert found == {
        "client": ["ABORTED"],
        "timeout": ["TIMEOUT"],
        "new": ["TAKEOVER", "TAKEOVER"],
        "order": ["FENCED", "FENCED"],
    }
    # The arrow of an abort begins where its cause is.
    assert named(by_client, "PrepareAbort").sender == "producer 7/4"
    assert named(by_timeout, "PrepareAbort").sender is None
    assert named(by_takeover, "PrepareAbort").sender == "producer 7/6"
    assert [lane.title for lane in by_takeover.lanes][:2] == ["producer, epoch 4", "producer, epoch 6"]
    assert [lane.title for lane in by_order.lanes][:2] == ["producer", "operator"]


def test_a_late_request_of_the_fenced_producer_is_a_step_in_its_own_lane() -> None:
    late = rpc("EndTxn", 300, about="commit", error_code=errors.PRODUCER_FENCED)
    found = ended(
        entry(EMPTY, -480, epoch=6), prepared=entry(PREPARE_ABORT, -500, start_ms=-600, epoch=5), rpcs=(late,)
    )
    step = found.steps[-1]
    assert (step.look, step.sender, step.name) == (Look.LATE, "producer 7/4", "EndTxn")
    assert step.sentence.startswith("EndTxn (commit) is refused with PRODUCER_FENCED: ")


def test_a_request_that_is_retried_or_not_answered_is_no_late_request() -> None:
    busy = rpc("AddPartitionsToTxn", 400, error_code=errors.CONCURRENT_TRANSACTIONS)
    waiting = rpc("EndTxn", 300, about="abort", duration_us=-1)
    found = timeline(entry(ONGOING, -600), rpcs=(busy, waiting), txn=described())
    assert looks(found)[1:] == [("AddPartitionsToTxn", Look.REFUSED), ("EndTxn", Look.WAITING)]
    assert found.steps[-1].sentence == "EndTxn (abort) is not answered yet, after 300 ms"


def test_a_write_after_the_end_is_a_late_write() -> None:
    found = timeline(
        *COMMIT, batches=BATCHES | {ORDERS: (*BATCHES[ORDERS], data(44, -100))}, producers={ORDERS: (producer(44),)}
    )
    step = named(found, "late write")
    assert (step.look, step.lane, step.sources[0].offset) == (Look.LATE, "partition orders-0", 44)
    assert step is found.steps[-1]


def test_only_the_batches_of_the_chosen_round_are_shown() -> None:
    again = (
        entry(ONGOING, -500),
        entry(PREPARE_COMMIT, -400, start_ms=-500),
        entry(COMPLETE_COMMIT, -390, start_ms=-500),
    )
    batches = {ORDERS: (*BATCHES[ORDERS], data(44, -490, 5), marker(49, -395))}
    last = timeline(*COMMIT, *again, batches=batches)
    assert [step.name for step in last.steps if step.lane == "partition orders-0"] == ["5 records", "COMMIT marker"]
    first = timeline(*COMMIT, *again, batches=batches, round_key=COMMIT[1].offset)
    assert [step.name for step in first.steps if step.lane == "partition orders-0"] == ["3 records", "COMMIT marker"]
    assert [row.key for row in last.rounds] == [COMMIT[1].offset, again[0].offset]
    assert (first.shown, last.shown) == (COMMIT[1].offset, again[0].offset)
    # The first move of a round comes from the state before it.
    assert last.way == ("CompleteCommit", "Ongoing", "PrepareCommit", "CompleteCommit")


def test_the_requests_of_one_round_are_not_steps_of_another() -> None:
    again = (
        entry(ONGOING, -500),
        entry(PREPARE_COMMIT, -400, start_ms=-500),
        entry(COMPLETE_COMMIT, -390, start_ms=-500),
    )
    requests = (
        rpc("AddPartitionsToTxn", 801, about="orders-0", duration_us=2_000),
        rpc("EndTxn", 701, about="commit", duration_us=15_000),
        rpc("AddPartitionsToTxn", 501, about="orders-0", duration_us=2_000),
        rpc("EndTxn", 401, about="commit", duration_us=15_000),
    )
    for key in (COMMIT[1].offset, again[0].offset):
        found = timeline(*COMMIT, *again, rpcs=requests, round_key=key)
        assert {step.look for step in found.steps} <= {Look.PLAIN, Look.OPEN, Look.COMMITTED}
        assert all(not step.key.startswith("request") for step in found.steps)


def test_a_batch_with_a_timestamp_of_years_ago_is_shown_in_its_transaction() -> None:
    found = timeline(*COMMIT, batches={ORDERS: (data(40, -(10**11)), marker(41, -695))})
    names = [step.name for step in found.steps]
    assert names.index("Ongoing") < names.index("1 record") < names.index("PrepareCommit")
    assert named(found, "1 record").at_ms == NOW_MS - 800


def test_of_many_batches_those_in_the_middle_are_one_step() -> None:
    many = tuple(data(40 + n, -790 + n) for n in range(50))
    found = timeline(*COMMIT, batches={ORDERS: (*many, marker(90, -695))})
    shown = [step for step in found.steps if step.key.startswith("batch orders-0")]
    assert [step.name for step in shown] == [*["1 record"] * 3, "44 records", *["1 record"] * 3]
    assert shown[3].sentence == "44 records in 44 batches on orders-0, offsets 43 to 86"


def test_of_many_partitions_only_some_have_a_lane() -> None:
    places = {("orders", n) for n in range(40)} | {("__consumer_offsets", 12)}
    found = timeline(entry(ONGOING, -600, partitions=places), txn=described())
    partitions = [lane.title for lane in found.lanes if lane.key.startswith("partition ")]
    assert len(partitions) == LANES_SHOWN
    assert partitions[-1] == "__consumer_offsets-12"
    assert found.partitions_left_out == 41 - LANES_SHOWN


def test_an_id_without_records_has_an_empty_timeline() -> None:
    found = timeline(txn=None)
    assert (found.rounds, found.steps, found.shown) == ((), (), None)
