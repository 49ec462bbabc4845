"""`scripts/fuzz.py`, with few frames: the verifier's clients beside them are unharmed, and find what a broker loses."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.testing import Broker
from scripts.fuzz import Run
from tests.crash.workload import ALL_TOPICS, SETTINGS, Lost
from tests.e2e.verify.mutants import MutantBroker
from tests.wire.hostile import TOPICS

FRAMES = 2_000


def go(folder: Path, broker: Broker) -> Run:
    run = Run(folder, broker, FRAMES, seed=7)
    try:
        run.go()
    finally:
        run.close()
    return run


def test_hostile_frames_do_no_harm_to_other_clients(tmp_path: Path) -> None:
    run = go(tmp_path, Broker(data=tmp_path / "data", settings=SETTINGS))
    assert run.sender.sent >= FRAMES
    assert run.workload.report is not None
    assert run.workload.report.committed > 0


def test_a_broker_that_shows_aborted_records_fails_the_run(tmp_path: Path) -> None:
    with pytest.raises(Lost, match="G1a"):
        go(tmp_path, MutantBroker("aborted-visible", data=tmp_path / "data", settings=SETTINGS))


def test_the_frames_cannot_name_the_topics_of_other_clients() -> None:
    assert not any(name in topic for topic in TOPICS for name in ALL_TOPICS)
