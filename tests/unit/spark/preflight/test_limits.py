"""What settings and versions of a cluster mean for a sink, and how a check shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.client.admin.answers import DescribedTxn
from fencepost.spark.driver.commit_note import CommitNote, UnreadableNote
from fencepost.spark.preflight.executors import judge_probes
from fencepost.spark.preflight.limits import (
    judge_id,
    judge_random_id,
    judge_record_batch,
    judge_retention,
    judge_timeout,
    judge_versions,
)
from fencepost.spark.preflight.report import OK, PROBLEM, UNKNOWN, WARNING, Checked, CheckReport, from_message

PROBE = Path(__file__).resolve().parents[4] / "src" / "fencepost" / "spark" / "preflight" / "probe.py"
NOW_MS = 1_000_000
NOTE = CommitNote("3f2a", 41, "digest")


def txn(state: str, start_ms: int = NOW_MS - 12_000) -> DescribedTxn:
    return DescribedTxn("refunds-1", 1, state, 7, 3, 300_000, start_ms, ())


@pytest.mark.parametrize(
    ("finding", "status", "said"),
    [
        (
            judge_versions({"transaction.version": 2, "metadata.version": 30}, "unverified"),
            OK,
            "metadata.version 30, tra",
        ),
        (judge_versions({}, None), OK, "transaction.version 0"),
        (judge_versions({"transaction.version": 1}, "late writes\n\nhint: verify"), PROBLEM, "1; late writes"),
        (judge_timeout(300_000, 900_000), OK, "300000, of at most 900000"),
        (judge_timeout(900_001, 900_000), PROBLEM, "900001 is more than transaction.max.timeout.ms=900000"),
        (judge_timeout(1, None), UNKNOWN, "do not show transaction.max.timeout.ms"),
        (judge_record_batch("out", 1_047_552, 1_048_588), OK, "1047552 bytes, of at most 1048588"),
        (judge_record_batch("out", 1_047_552, 1000), WARNING, "sent again in halves"),
        (judge_record_batch("out", 1_047_552, None), UNKNOWN, "does not show max.message.bytes"),
        (judge_retention(10_080, False), OK, "10080"),
        (judge_retention(10_080, True), OK, "10080 (by fencepost.offsets.retention.minutes)"),
        (judge_retention(60, False), WARNING, "stands still for longer"),
        (judge_retention(None, False), WARNING, "cannot be started again"),
        (judge_id("refunds-1", None, None, NOW_MS), OK, "no producer has registered it; Kafka has no commit note"),
        (
            judge_id("refunds-1", txn("CompleteCommit"), NOTE, NOW_MS),
            OK,
            "producer 7, epoch 3, no open transaction; its last commit note is of micro-batch 41 of query 3f2a",
        ),
        (
            judge_id("refunds-1", txn("Ongoing"), NOTE, NOW_MS),
            WARNING,
            "Ongoing for 12 s, producer 7, epoch 3, timeout 300 s: a pipeline with this id is running, or has just",
        ),
        (judge_id("refunds-1", txn("PrepareAbort", -1), None, NOW_MS), WARNING, "PrepareAbort, producer 7, epoch 3, "),
        (judge_id("refunds-1", txn("Empty"), UnreadableNote("x\x1b"), NOW_MS), WARNING, r"Kafka has 'x\x1b' where"),
        (judge_random_id("job-8f14e45f-ceea-467f-a8fc-7b6e4a1c1b8e"), WARNING, "neither fences this pipeline nor"),
    ],
)
def test_a_limit_is_judged(finding: Checked, status: str, said: str) -> None:
    assert finding.status == status
    assert said in finding.text
    assert (finding.hint is not None) or status in (OK, UNKNOWN)


def test_the_query_to_adopt_is_named_as_the_sink_takes_it() -> None:
    assert judge_id("refunds-1", txn("Empty"), NOTE, NOW_MS).hint == (
        'a query with another checkpoint has to adopt that one: adopt="3f2a"'
    )


def test_every_address_that_an_executor_cannot_reach_is_named_once() -> None:
    names = ["broker 1 at a:9092", "the driver's lease port d:40000"]
    far = {"host": "w2", "python": "3.12.1", "problems": [None, "Connection refused"]}
    near = {"host": "w1", "python": "3.11.7", "problems": [None, None]}
    [problem] = judge_probes("executors", [near, far, far], names)
    assert problem.status == PROBLEM
    assert problem.text == "w2 cannot reach the driver's lease port d:40000: Connection refused"
    [fine] = judge_probes("executors", [near, near], names)
    assert fine.status == OK
    assert fine.text.endswith("from w1 (Python 3.11.7)")


def test_a_report_shows_hints_below_their_findings() -> None:
    report = CheckReport((Checked("a", OK, "fine"), from_message("b", "not fine\n\nhint: do this\n  and that")))
    assert not report.is_ok
    assert str(report) == (
        "ok           a: fine\nproblem      b: not fine\n             hint: do this\n               and that"
    )
    assert CheckReport((Checked("a", WARNING, "careful"), Checked("b", UNKNOWN, "who knows"))).is_ok


def test_the_probe_runs_on_a_machine_that_has_nothing_but_python() -> None:
    program = f"exec(open({str(PROBE)!r}).read()); print(probe([('127.0.0.1', 1)]))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert "refused" in done.stdout
