"""The table in `tests/conftest.py` of what runs together, and first, names files that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import LONGEST_FIRST, TOGETHER, scope_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("place", [place for places in TOGETHER.values() for place in places])
def test_what_runs_together_is_there(place: str) -> None:
    assert (ROOT / place).exists()


@pytest.mark.parametrize("scope", LONGEST_FIRST)
def test_what_begins_first_is_a_scope(scope: str) -> None:
    assert scope in TOGETHER or (scope_of(scope) == scope and (ROOT / scope).exists())
