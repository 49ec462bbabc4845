"""Random walks (tests/conformance/walks.py), on a real Apache Kafka: it answers, and writes, what we do."""

from __future__ import annotations

import pytest

from tests.conformance.records import LogReader
from tests.conformance.test_against_apache_kafka import ApacheTarget
from tests.conformance.walks import text, walk
from tests.pure_broker import PureBroker
from tests.transcripts.running import run

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

FEW, MANY = range(8), range(1000, 1150)


@pytest.mark.parametrize("seed", [*FEW, *(pytest.param(seed, marks=pytest.mark.engines) for seed in MANY)])
def test_apache_kafka_goes_the_same_way(seed: int, oracle: ApacheTarget) -> None:
    prefix = f"walk-{seed}."
    transcript = walk(seed, 80, prefix)
    print(text(transcript))  # pytest shows the transcript if the test fails.
    ours = LogReader(run(transcript, PureBroker(), prefix))
    theirs = LogReader(run(transcript, oracle, prefix))
    assert ours.states() == theirs.states()
    assert ours.batches() == theirs.batches()
    assert ours.groups() == theirs.groups()
