"""Stories of consumer groups, on the pure broker; `tests/conformance` runs the same on Apache Kafka.

The expected answers are in `consumer_stories.txt`; `python -m tests.unit.broker.test_consumer_requests` rewrites it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conformance.consumer_requests import SETTINGS, STORIES, Stage, told
from tests.pure_broker import PureBroker

FILE = Path(__file__).parent / "consumer_stories.txt"


def expected() -> dict[str, str]:
    parts = re.split(r"^== (.*)\n", FILE.read_text(), flags=re.MULTILINE)[1:]
    return {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}


@pytest.mark.parametrize("name", STORIES)
def test_the_broker_answers_as_it_did(name: str) -> None:
    assert told(Stage(PureBroker(SETTINGS)), name) == expected()[name]


def main() -> None:
    stories = [f"== {name}\n{told(Stage(PureBroker(SETTINGS)), name)}\n" for name in STORIES]
    FILE.write_text("\n".join(stories))


if __name__ == "__main__":
    main()
