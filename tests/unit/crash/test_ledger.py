"""The checker of crash tests: for every anomaly a history that has it, and one that has not."""

from __future__ import annotations

from pathlib import Path

from tests.crash.journal import Journal, Journals
from tests.crash.ledger import (
    KEYS,
    Checker,
    Ledger,
    Outcome,
    Seen,
    check_compacted,
    check_order,
    check_pipeline,
    check_retained,
)

TOPICS = ["orders", "payments"]


def ledger_of(*outcomes: Outcome) -> Ledger:
    """One writer, `w`; each transaction has one record to each of two topics."""
    ledger = Ledger()
    for outcome in outcomes:
        entry = ledger.open("w")
        for topic in TOPICS:
            entry.write(topic)
        if outcome is not Outcome.OPEN:
            entry.end(outcome)
    return ledger


def read(*values: str) -> list[Seen]:
    """`0:1` is the second record of the first transaction."""
    return [Seen(TOPICS[int(value[-1])], 0, offset, f"w:{value}|") for offset, value in enumerate(values)]


def kinds(ledger: Ledger, *values: str) -> list[str]:
    return [anomaly.kind for anomaly in Checker(ledger).check(ledger.over(), read(*values))]


def test_a_history_in_order_has_no_anomaly() -> None:
    ledger = ledger_of(Outcome.COMMITTED, Outcome.ABORTED, Outcome.UNKNOWN, Outcome.UNKNOWN, Outcome.OPEN)
    assert kinds(ledger, "0:0", "0:1", "3:0", "3:1", "4:0") == []
    assert ledger.count()[Outcome.UNKNOWN] == 2


def test_a_commit_that_cannot_be_read_is_lost() -> None:
    assert kinds(ledger_of(Outcome.COMMITTED)) == ["lost"]
    assert kinds(ledger_of(Outcome.COMMITTED), "0:0") == ["lost"]


def test_a_record_of_an_aborted_transaction_must_not_be_read() -> None:
    assert kinds(ledger_of(Outcome.ABORTED), "0:0", "0:1") == ["aborted read", "aborted read"]


def test_half_a_transaction_of_unknown_outcome_is_torn() -> None:
    assert kinds(ledger_of(Outcome.UNKNOWN), "0:1") == ["torn"]


def test_an_open_transaction_may_be_read_in_part_since_its_markers_are_written_one_by_one() -> None:
    assert kinds(ledger_of(Outcome.OPEN), "0:1") == []


def test_a_record_must_not_be_read_twice() -> None:
    assert "duplicate" in kinds(ledger_of(Outcome.COMMITTED), "0:0", "0:1", "0:1")


def test_a_record_that_no_client_wrote_is_invented() -> None:
    assert kinds(ledger_of(Outcome.COMMITTED), "0:0", "0:1", "7:0") == ["invented"]


def test_a_transaction_that_is_over_must_stay_as_it_was_seen() -> None:
    for first, then in [([], ["0:0", "0:1"]), (["0:0", "0:1"], [])]:
        ledger = ledger_of(Outcome.UNKNOWN)
        checker = Checker(ledger)
        assert checker.check(ledger.over(), read(*first)) == []
        assert [anomaly.kind for anomaly in checker.check(ledger.over(), read(*then))] == ["changed"]


def test_a_writer_s_records_keep_their_order_within_a_partition() -> None:
    assert [a.kind for a in check_order(read("1:0", "0:0"))] == ["out of order"]
    assert check_order(read("0:0", "1:0")) == []
    elsewhere = [Seen("orders", 0, 0, "w:1:0|"), Seen("orders", 1, 0, "w:0:0|"), Seen("orders", 0, 1, "v:0:0|")]
    assert check_order(elsewhere) == []


INPUTS = [Seen("orders", 0, 0, "w:0:0|"), Seen("orders", 0, 2, "w:1:0|")]


def outputs(*sources: str) -> list[Seen]:
    return [Seen("invoices", 0, offset, f"copier:{offset}:0|{source}") for offset, source in enumerate(sources)]


def pipeline(committed: int, *sources: str, at_rest: bool = True) -> list[str]:
    return [a.kind for a in check_pipeline(INPUTS, outputs(*sources), {0: committed}, at_rest=at_rest)]


def test_a_pipeline_in_order_has_no_anomaly() -> None:
    assert pipeline(3, "0@0", "0@2") == []
    assert pipeline(1, "0@0") == []
    assert pipeline(1, "0@0", "0@2", at_rest=False) == []


def test_every_input_below_the_group_s_offset_has_one_output() -> None:
    assert pipeline(3, "0@0") == ["skipped"]
    assert pipeline(3, "0@0", "0@2", "0@2") == ["duplicate", "out of order"]


def test_an_output_above_the_group_s_offset_would_be_made_again() -> None:
    assert pipeline(1, "0@0", "0@2") == ["offset behind"]


def test_an_output_without_an_input_is_invented() -> None:
    assert pipeline(3, "0@0", "0@2", "0@7") == ["invented", "offset behind"]


def test_records_that_a_topic_may_forget_are_not_missed_and_its_aborted_ones_are_still_found() -> None:
    def kinds_without_payments(outcome: Outcome, *values: str) -> list[str]:
        ledger = ledger_of(outcome)
        return [anomaly.kind for anomaly in Checker(ledger, {"payments"}).check(ledger.over(), read(*values))]

    assert kinds_without_payments(Outcome.COMMITTED, "0:0") == []
    assert kinds_without_payments(Outcome.COMMITTED, "0:1") == ["lost"]
    assert kinds_without_payments(Outcome.UNKNOWN, "0:0") == []
    assert kinds_without_payments(Outcome.ABORTED, "0:1") == ["aborted read"]


def committed_to_one_topic(transactions: int, records: int) -> Ledger:
    ledger = Ledger()
    for _ in range(transactions):
        entry = ledger.open("w")
        for _ in range(records):
            entry.write("balances")
        entry.end(Outcome.COMMITTED)
    return ledger


def in_one_topic(*values: str) -> list[Seen]:
    return [Seen("balances", 0, offset, f"w:{value}|") for offset, value in enumerate(values)]


def test_a_compacted_topic_has_the_newest_record_of_every_key() -> None:
    def check(*values: str) -> list[str]:
        over = committed_to_one_topic(transactions=2, records=2).over()
        return [anomaly.kind for anomaly in check_compacted(over, "balances", in_one_topic(*values))]

    assert check("1:0", "1:1") == []
    assert check("0:1", "1:0", "1:1", f"2:{KEYS}") == []
    assert check("0:1", "1:0") == ["lost"]
    assert check("1:1") == ["lost"]


def test_a_topic_that_is_kept_short_loses_its_oldest_records_only() -> None:
    def check(*values: str) -> list[str]:
        over = committed_to_one_topic(transactions=3, records=1).over()
        return [anomaly.kind for anomaly in check_retained(over, "balances", in_one_topic(*values))]

    assert check("0:0", "1:0", "2:0") == check("1:0", "2:0") == check("2:0") == check() == []
    assert check("0:0", "2:0") == ["lost"]
    assert check("0:0", "1:0") == ["lost"]


def test_the_transactions_in_a_journal_are_those_that_its_client_wrote(tmp_path: Path) -> None:
    journal, journals = Journal(tmp_path / "w", "w"), Journals({"w": tmp_path / "w"})
    first, second = journal.open("w"), journal.open("w")
    first.write("orders")
    second.write("payments")
    journals.refresh()
    assert journals.all() == [], "no client has asked to commit"
    first.end(Outcome.ABORTED)
    second.ask()
    journals.refresh()
    assert [(entry.topics, entry.outcome) for entry in journals.all()[1:]] == [
        (["orders"], Outcome.ABORTED),
        (["payments"], Outcome.OPEN),
    ]
    assert len(journals.over()) == 1


def test_a_client_that_was_killed_finds_its_unfinished_transaction_and_repeats_no_number(tmp_path: Path) -> None:
    killed = Journal(tmp_path / "w", "w")
    assert killed.left_behind is None
    killed.open("w").end(Outcome.COMMITTED)
    asked = killed.open("w")
    asked.ask()
    following = Journal(tmp_path / "w", "w")
    assert following.left_behind is not None
    entry, outcome = following.left_behind
    assert (entry.number, outcome) == (asked.number, Outcome.UNKNOWN)
    entry.end(outcome)
    assert following.open("w").number > asked.number + 1
    assert Journal(tmp_path / "w", "w").left_behind is None
