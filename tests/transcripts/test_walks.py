"""Random walks (tests/conformance/walks.py): both orders of EndTxn's reply lead to the same place."""

from __future__ import annotations

import pytest

from tests.conformance.records import LogReader
from tests.conformance.walks import walk
from tests.pure_broker import PureBroker
from tests.transcripts.running import run
from tests.transcripts.test_transcripts import PREPARE, PatientBroker


@pytest.mark.parametrize("seed", range(40))
def test_in_apache_kafkas_order_everything_ends_the_same(seed: int) -> None:
    prefix = f"walk-{seed}."
    transcript = walk(seed, 100, prefix)
    one = LogReader(run(transcript, PureBroker(), prefix))
    other = LogReader(run(transcript, PatientBroker(PREPARE), prefix))
    assert one.states() == other.states()
    assert one.batches() == other.batches()
    assert one.groups() == other.groups()
