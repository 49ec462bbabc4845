"""The report of a demo as text: expected and found values side by side, and the evidence if they differ."""

from __future__ import annotations

import json

import pytest

import fencepost.demo.recovery
from fencepost.cli import main
from fencepost.cli.demo import blocks_of, write_report
from fencepost.cli.output import as_text
from fencepost.demo.report import Check, Report, Section

GOOD = Check("orders", 3, 3, ["not shown"])
BAD = Check("payments", (1, 1), (2, 1), ["brew.payments.v1-0 offset 7: order-1"])


def report(*checks: Check) -> Report:
    return Report("brew", {"seed": 1}, [Section("Title", ["A story."], ("topic", "n"), [("orders", 12)], list(checks))])


def test_checks_that_hold_are_shown_without_evidence() -> None:
    assert as_text(blocks_of(report(GOOD))).splitlines() == [
        "Title",
        "",
        "A story.",
        "",
        "topic    n",
        "orders  12",
        "",
        "    check   expected  found",
        "ok  orders  3         3",
        "",
        "all 1 checks hold",
    ]


def test_a_check_that_fails_shows_both_values_and_the_evidence() -> None:
    lines = as_text(blocks_of(report(GOOD, BAD))).splitlines()
    assert "FAIL  payments  1, 1      2, 1" in lines
    assert "FAIL payments: brew.payments.v1-0 offset 7: order-1" in lines
    assert lines[-1] == "1 of 2 checks failed"


def test_the_exit_code_says_whether_everything_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for check, exit_code in ((GOOD, 0), (BAD, 1)):
        monkeypatch.setattr(fencepost.demo.recovery, "play_recovery", lambda progress, check=check: report(check))
        assert main(["demo", "recovery"]) == exit_code
    shown = capsys.readouterr()
    assert "FAIL payments: brew.payments.v1-0 offset 7: order-1" in shown.out
    assert shown.err.startswith("error: some checks failed\n\nhint: ")


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    write_report(report(GOOD, BAD), as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["holds"] is False
    assert [check["holds"] for check in document["sections"][0]["checks"]] == [True, False]
    assert document["sections"][0]["checks"][1]["evidence"] == list(BAD.evidence)
    assert document["sections"][0]["table"] == [{"topic": "orders", "n": 12}]
