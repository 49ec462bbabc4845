"""Every transcript in this folder, on the pure broker with a clock that jumps.

With `fencepost.endtxn.reply=prepare`, Apache Kafka's order, clients have to retry more often. All else is the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.records import LogReader
from tests.pure_broker import PureBroker
from tests.transcripts.parsing import parse
from tests.transcripts.running import run

PREPARE = {"fencepost.endtxn.reply": "prepare"}
TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_broker_answers_as_the_transcript_says(path: Path) -> None:
    transcript = parse(path)
    run(transcript, PureBroker(transcript.settings))


class PatientBroker(PureBroker):
    """A broker whose busy answers are retried, as every client does."""

    is_independent = True


def without_order(path: Path) -> bool:
    """Whether the transcript is independent of the moment when EndTxn answers."""
    transcript = parse(path)
    return transcript.only_fencepost is None and "fencepost.endtxn.reply" not in transcript.settings


@pytest.mark.parametrize("path", [p for p in TRANSCRIPTS if without_order(p)], ids=lambda path: path.stem)
def test_in_apache_kafkas_order_the_final_answers_and_records_are_the_same(path: Path) -> None:
    transcript = parse(path)
    one = LogReader(run(transcript, PureBroker(transcript.settings), "t."))
    other = LogReader(run(transcript, PatientBroker(transcript.settings | PREPARE), "t."))
    assert one.states() == other.states()
    assert one.batches() == other.batches()
    assert one.groups() == other.groups()
