"""Drivers that are killed at every step of a micro-batch, and drivers that sleep there while a successor takes over."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fencepost.spark.sink import ExactlyOnceSink
from tests.e2e.conftest import Target
from tests.e2e.spark.driver import Held
from tests.e2e.spark.streams import (
    PLANE,
    TIMEOUT_S,
    Lines,
    create_topic,
    is_free,
    is_soon_free,
    outcomes,
    settings,
    start,
    stream,
    values,
    wait_for,
)

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.usefixtures("plane")]

# Every point where a driver can be put to sleep, and where it can be killed.
SLEEP_AT = ("start", "next", "task", "marked")
KILL_AT = ("begun", "task", "written", "marked", "committed")
KILL_FORMAT_AT = ("task", "marked", "committed")  # There is no function of the user's to wait in.
START_TIMEOUT_S = 180.0


@dataclass
class Case:
    """A query whose driver is held in the middle of it."""

    held: Held
    lines: Lines

    @property
    def point(self) -> str:
        return self.held.point

    def sink(self) -> ExactlyOnceSink:
        return ExactlyOnceSink(settings(self.held.servers, self.held.transactional_id, topic=self.held.topic))

    def start(self, spark: Any, sink: ExactlyOnceSink) -> Any:
        return start(stream(spark, self.lines), sink, Path(self.held.checkpoint))

    def assert_exactly_once(self) -> None:
        assert values(self.held.servers, self.held.topic) == sorted(self.lines.all), self.point
        assert is_soon_free(self.held.servers, self.held.topic), self.point


Successor = tuple[Case, ExactlyOnceSink]


class Driver:
    """A process with Java and workers of its own, which all get the same signals."""

    def __init__(self, folder: Path, cases: list[Case]) -> None:
        queries = folder / "queries.json"
        queries.write_text(json.dumps([case.held for case in cases]))
        self._reached = [Path(case.held.reached) for case in cases]
        self._log = folder / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("driver.py"), queries],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_until_held(self) -> None:
        wait_for(lambda: all(path.exists() for path in self._reached) or not self.is_alive, START_TIMEOUT_S)
        assert self.is_alive, self._log.read_text()[-4000:]

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, sign: signal.Signals) -> None:
        os.killpg(self._process.pid, sign)

    def kill(self) -> None:
        if self.is_alive:
            self.send(signal.SIGKILL)
            self._process.wait()


def make_case(point: str, id_: str, servers: str, place: Path, entry: str) -> Case:
    place.mkdir()
    lines = Lines(place / "lines")
    lines.add_batch()
    lines.add_batch()
    paths = {"folder": "lines"} | {name: name for name in ("checkpoint", "reached", "go", "ended")}
    places = {field: str(place / name) for field, name in paths.items()}
    return Case(Held(point, servers, id_, create_topic(servers, id_), plane=PLANE.get(), entry=entry, **places), lines)


def is_open(servers: str, topic: str) -> bool:
    return not is_free(servers, topic)


def close(successors: list[Successor]) -> None:
    for _, sink in successors:
        sink.close()


def run_all(spark: Any, successors: list[Successor]) -> None:
    queries = [case.start(spark, sink) for case, sink in successors]
    for query in queries:
        assert query.awaitTermination(TIMEOUT_S), "the query did not end"


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("target", "entry", "sleep_at", "kill_at"),
    [
        ("fencepost TV2", "foreachBatch", ("next", "marked"), ("written", "committed")),
        *(
            pytest.param(name, "foreachBatch", SLEEP_AT, KILL_AT, marks=pytest.mark.engines)
            for name in ("fencepost TV2", "apache TV2", "apache TV1")
        ),
        *(
            pytest.param(name, "format", SLEEP_AT, KILL_FORMAT_AT, marks=pytest.mark.engines)
            for name in ("fencepost TV2", "apache TV2", "apache TV1")
        ),
    ],
    indirect=["target"],
)
def test_a_driver_that_sleeps_or_is_killed_at_any_point_has_a_successor_that_writes_every_batch_once(
    spark: Any,
    target: Target,
    entry: str,
    sleep_at: tuple[str, ...],
    kill_at: tuple[str, ...],
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    def make_cases(points: tuple[str, ...]) -> list[Case]:
        named = [(point, unique(point)) for point in points]
        return [make_case(point, id_, target.servers, tmp_path / id_, entry) for point, id_ in named]

    sleeping, killed = make_cases(sleep_at), make_cases(kill_at)
    driver = Driver(tmp_path, sleeping + killed)
    try:
        driver.wait_until_held()
        driver.send(signal.SIGSTOP)
        successors = [(case, case.sink()) for case in sleeping]
        try:
            succeed_a_sleeper(spark, successors)
            driver.send(signal.SIGCONT)
            for case in sleeping:
                Path(case.held.go).touch()
            wait_for(lambda: all(Path(case.held.ended).exists() for case in sleeping))
            assert_refused(sleeping)
            go_on_undisturbed(spark, successors)
        finally:
            close(successors)
    finally:
        driver.kill()
    for case in killed:
        is_over = case.point in ("begun", "committed")
        assert (is_soon_free if is_over else is_open)(case.held.servers, case.held.topic), case.point
    successors = [(case, case.sink()) for case in killed]
    try:
        run_all(spark, successors)
        for case, sink in successors:
            case.assert_exactly_once()
            expected = (1, "skipped", 0) if case.point == "committed" else (1, "committed", 40)
            assert outcomes(sink) == [expected], case.point
    finally:
        close(successors)


def succeed_a_sleeper(spark: Any, successors: list[Successor]) -> None:
    """Run the micro-batch in which the driver sleeps, and more: every row is there once, without that driver."""
    for case, _ in successors:
        for _ in range(3 if case.point == "start" else 1):
            case.lines.add_batch()
    run_all(spark, successors)
    for case, sink in successors:
        case.assert_exactly_once()
        batches = [0, 1, 2, 3, 4] if case.point == "start" else [1, 2]
        assert [p.batch_id for p in sink.recent_progress] == batches, case.point
        assert {p.outcome for p in sink.recent_progress} == {"committed"}, case.point


def assert_refused(sleeping: list[Case]) -> None:
    """Each driver that woke up continued where it was, wrote nothing, and says why."""
    for case in sleeping:
        case.assert_exactly_once()
        said = Path(case.held.ended).read_text()
        if case.point == "start":
            # It did not know of its successor, and took the id over. Then it read the successor's commit note.
            assert "Kafka has micro-batch 4 of this query, but Spark runs micro-batch 0" in said
        else:
            assert "SinkFenced" in said, (case.point, said)
            old = re.search(r"this producer has id (\d+) and epoch (\d+)", said)
            new = re.search(r"it belongs to producer (\d+), epoch (\d+) now", said)
            assert old is not None, (case.point, said)
            assert new is not None, (case.point, said)
            assert old.groups() != new.groups(), (case.point, said)


def go_on_undisturbed(spark: Any, successors: list[Successor]) -> None:
    """A driver that slept and was refused does not disturb its successor, except if it took the id over: then the
    successor is refused, and a third driver continues."""
    for case, _ in successors:
        case.lines.add_batch()
    case, sink = successors[0]
    if case.point == "start":
        with pytest.raises(Exception, match="SinkFenced"):
            run_all(spark, successors[:1])
        sink.close()
        successors[0] = (case, case.sink())
    run_all(spark, successors)
    for case, _ in successors:
        case.assert_exactly_once()
