"""The records of an id are cut into rounds, one transaction each."""

from __future__ import annotations

from fencepost.client.admin.answers import NamedPartition
from fencepost.diagnose.snapshot import LogEntry
from fencepost.diagnose.timeline.rounds import RoundOutcome, choose, rounds_of
from fencepost.machines.txn.states import TxnState
from tests.unit.diagnose.snapshots import entry

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, *_ = TxnState

COMMITTED = (
    entry(EMPTY, -900),
    entry(ONGOING, -800),
    entry(PREPARE_COMMIT, -700, start_ms=-800),
    entry(COMPLETE_COMMIT, -690, start_ms=-800),
)
TAKEN_OVER = (
    entry(ONGOING, -600),
    entry(PREPARE_ABORT, -500, start_ms=-600, epoch=5),
    entry(COMPLETE_ABORT, -490, start_ms=-600, epoch=5),
    entry(EMPTY, -480, epoch=6),
)


def states(*entries: LogEntry) -> list[list[str]]:
    return [[record.transition.state for record in round_.records] for round_ in rounds_of(entries)]


def test_a_round_has_the_registrations_before_and_after_its_transaction() -> None:
    assert states(*COMMITTED, *TAKEN_OVER, entry(ONGOING, -400, epoch=6)) == [
        ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"],
        ["Ongoing", "PrepareAbort", "CompleteAbort", "Empty"],
        ["Empty", "Ongoing"],
    ]


def test_the_outcome_of_a_round_is_that_of_its_transaction() -> None:
    rounds = rounds_of((*COMMITTED, *TAKEN_OVER, entry(ONGOING, -400, epoch=6)))
    assert [round_.outcome for round_ in rounds] == [RoundOutcome.COMMITTED, RoundOutcome.ABORTED, RoundOutcome.OPEN]
    assert rounds_of(COMMITTED[:3])[0].outcome is RoundOutcome.COMMITTING
    assert rounds_of(COMMITTED[:1])[0].outcome is RoundOutcome.REGISTERED
    removed = LogEntry(offset=5, timestamp_ms=0, txn=None)
    assert rounds_of((COMMITTED[0], removed))[0].outcome is RoundOutcome.REMOVED


def test_an_abort_without_an_open_transaction_begins_no_round() -> None:
    only_epoch = (entry(PREPARE_ABORT, -600, epoch=5), entry(COMPLETE_ABORT, -590, epoch=5))
    [round_] = rounds_of((*COMMITTED, *only_epoch))
    assert round_.outcome is RoundOutcome.COMMITTED
    assert len(round_.records) == 6


def test_what_compaction_left_of_an_earlier_transaction_is_a_round_of_its_own() -> None:
    assert states(COMMITTED[3], entry(ONGOING, -300)) == [["CompleteCommit"], ["Ongoing"]]


def test_a_round_has_every_partition_that_was_ever_in_it() -> None:
    added = entry(ONGOING, -750, start_ms=-800, partitions={("orders", 0), ("payments", 3)})
    [round_] = rounds_of(
        (*COMMITTED[:2], added, entry(PREPARE_COMMIT, -700, start_ms=-800, partitions={("orders", 0)}))
    )
    assert round_.partitions == (NamedPartition("orders", 0), NamedPartition("payments", 3))


def test_a_round_is_chosen_by_the_offset_of_its_first_record_and_the_last_one_otherwise() -> None:
    rounds = rounds_of((*COMMITTED, *TAKEN_OVER))
    assert choose(rounds, COMMITTED[1].offset) is rounds[0]
    assert choose(rounds, None) is rounds[1]
    assert choose(rounds, 7) is rounds[1]
    assert choose((), None) is None
