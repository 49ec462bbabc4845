"""The arithmetic, tables and plots of the benchmarks, from small results. Nothing is measured here."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import plots, report
from benchmarks.cases import CASES, GROWTH, THROUGHPUT
from benchmarks.goals import GOALS, Goal
from benchmarks.results import CaseResult, Results, merge, read, write

MACHINE = {"processor": "abacus", "cores": "2"}


def results(**cases: dict[str, dict[str, list[float]]]) -> Results:
    return Results(
        MACHINE, {name.replace("_", "-"): CaseResult("abc1234", "2026-01-01", 1.0, of) for name, of in cases.items()}
    )


def rates(kafka: float, fencepost: float, mock: float | None = None) -> dict[str, dict[str, list[float]]]:
    """Each with an outlier, which a median leaves out."""
    found = {"kafka": kafka, "fencepost": fencepost} | ({} if mock is None else {"mock": mock})
    return {kind: {"per_s": [rate, rate, rate * 100]} for kind, rate in found.items()}


# --- the file -----------------------------------------------------------------------------------------------------


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    found = results(batches=rates(100, 300))
    write(tmp_path / "results.json", found)
    assert read(tmp_path / "results.json") == found


def test_cases_that_were_not_measured_again_stay() -> None:
    both = merge(results(batches=rates(1, 2), start=rates(3, 4)), results(start=rates(5, 6)))
    assert both.cases["batches"].figures == rates(1, 2)
    assert both.cases["start"].figures == rates(5, 6)


# --- tables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("goal", "value", "is_met"),
    [
        (Goal("batches", "per_s", 0.85), 0.85, True),
        (Goal("batches", "per_s", 0.85), 0.84, False),
        (Goal("batches", "p50", 0.35, is_minimum=False), 0.35, True),
        (Goal("batches", "p50", 0.35, is_minimum=False), 0.36, False),
    ],
)
def test_a_goal_is_met_at_its_bound(goal: Goal, value: float, is_met: bool) -> None:
    assert goal.is_met(value) is is_met


def test_goals_are_met_not_met_or_not_measured() -> None:
    lines = list(report.goals(results(batches=rates(100, 300, 320), fetch_100B=rates(100, 90))))
    verdicts = {line.split(" | ")[0].removeprefix("| "): line.split(" | ")[1:] for line in lines[2:]}
    batches = "transactions of 1,000 x 100 B: records/s, ratio to the mock"
    assert verdicts[batches] == ["at least 0.9", "0.94", "met |"]
    assert verdicts["read_committed fetch, 100 B: records/s, ratio to Apache Kafka"][1:] == ["0.90", "**not met** |"]
    assert verdicts["idempotent produce, 1 KiB: records/s, ratio to Apache Kafka"][1:] == ["-", "- |"]


def test_every_goal_is_of_a_case() -> None:
    assert {goal.case for goal in GOALS} <= CASES.keys()
    assert set(THROUGHPUT) <= CASES.keys()
    assert {f"{case}-{point}" for case, points in GROWTH.values() for point in points} <= CASES.keys()


# --- plots --------------------------------------------------------------------------------------------------------


def test_a_plot_of_throughput_has_a_bar_for_each_contender_and_the_goal() -> None:
    found = results(fetch_100B=rates(100, 150, 200))
    drawn = plots.throughput(found)
    assert ">1.50x<" in drawn
    assert ">2.00x<" in drawn
    assert ">goal of Fencepost<" in drawn
    ElementTree.fromstring(drawn)


def test_the_colours_are_those_of_the_workbench() -> None:
    assert re.fullmatch("#[0-9a-f]{6}", plots.colour("marker"))


def test_the_plots_in_the_documents_are_those_of_the_results() -> None:
    stored = {name: (report.PICTURES / name).read_text() for name in report.plots(read(report.RESULTS))}
    assert stored == report.plots(read(report.RESULTS)), "run `python -m benchmarks.report`"


def test_results_of_one_case_of_one_contender_make_every_table_and_plot() -> None:
    few = results(start={"fencepost": {"seconds": [0.2]}})
    for name, block in report.BLOCKS.items():
        assert list(block(few)), name
    for picture in report.plots(few).values():
        assert plots.NOT_MEASURED in picture
        ElementTree.fromstring(picture)
