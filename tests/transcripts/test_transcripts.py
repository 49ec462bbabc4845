"""Every transcript in this folder, on the pure broker with a clock that jumps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.node import PureBroker
from tests.support.transcripts import parse, run

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_broker_answers_as_the_transcript_says(path: Path) -> None:
    transcript = parse(path)
    run(transcript, PureBroker(transcript.settings))
