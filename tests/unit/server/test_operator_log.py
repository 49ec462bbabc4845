"""The lines of the broker's log."""

from __future__ import annotations

import pytest

from fencepost.broker.coordinator.txn_trace import TxnEvent, TxnEventKind
from fencepost.server.operator_log import Level, OperatorLog

MOMENT_MS = 1_700_000_000_007


def make(level: Level) -> tuple[OperatorLog, list[str]]:
    lines: list[str] = []
    return OperatorLog(level, lines.append, lambda: MOMENT_MS), lines


def test_every_line_has_its_time_and_its_level() -> None:
    log, lines = make(Level.DEBUG)
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d\n\nhint: e")
    assert lines == [
        "2023-11-14T22:13:20.007Z DEBUG   a",
        "2023-11-14T22:13:20.007Z INFO    b",
        "2023-11-14T22:13:20.007Z WARNING c",
        "2023-11-14T22:13:20.007Z ERROR   d",
        "2023-11-14T22:13:20.007Z ERROR   hint: e",
    ]


@pytest.mark.parametrize("level", Level)
def test_lines_below_the_level_are_left_out(level: Level) -> None:
    log, lines = make(level)
    for say in (log.debug, log.info, log.warning, log.error):
        say("text")
    assert [line.split()[1] for line in lines] == [each.name for each in Level if each >= level]


FORGED = "t1\n2023-11-14T22:13:20.007Z INFO    all is well\x1b[2K\u2028\u202e\x9b\x7f"


def test_an_id_that_a_client_chose_stays_on_its_line_and_shows_what_is_invisible_in_it() -> None:
    log, lines = make(Level.DEBUG)
    for say in (log.debug, log.info, log.warning):
        say(f"transaction {FORGED} was open")
    log.txn(TxnEvent(TxnEventKind.BEGIN, FORGED, 7, 3))
    log.txn(TxnEvent(TxnEventKind.BEGIN, "t1", 7, 3, f"refused: {FORGED}"))
    assert len(lines) == 5
    assert all(r"t1\n2023-11-14T22:13:20.007Z INFO    all is well\x1b[2K\u2028\u202e\x9b\x7f" in line for line in lines)


def test_lines_about_transactions_are_written_at_every_level() -> None:
    log, lines = make(Level.ERROR)
    log.txn(TxnEvent(TxnEventKind.BEGIN, "t1", 7, 3))
    assert lines == ["2023-11-14T22:13:20.007Z TXN     begin    t1 (producer 7, epoch 3)"]
