"""Times and numbers as people read them."""

from __future__ import annotations

import pytest

from fencepost.counting import counted
from fencepost.diagnose.words import duration, instant, listed, percent


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-5, "0 ms"),
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (2540, "2.5 s"),
        (3_960, "4 s"),
        (9_949, "9.9 s"),
        (9_960, "10 s"),
        (12_400, "12 s"),
        (12_900, "13 s"),
        (59_999, "1 m"),  # A timeout of a minute after `txn fence`.
        (60_000, "1 m"),
        (200_000, "3 m 20 s"),
        (7_500_000, "2 h 5 m"),
        (615_600_000, "7 d 3 h"),
    ],
)
def test_a_duration_has_two_units_at_most(ms: int, text: str) -> None:
    assert duration(ms) == text


def test_a_moment_is_in_utc_with_milliseconds() -> None:
    assert instant(1_800_000_000_250) == "2027-01-15 08:00:00.250Z"


@pytest.mark.parametrize("ms", [1_800_000_000_000_000, 2**63 - 1, -(2**63), 253_402_300_800_000])
def test_a_moment_outside_the_calendar_is_shown_as_its_number(ms: int) -> None:
    """A producer that stamps its records in microseconds, say."""
    assert instant(ms) == f"{ms} ms since 1970"


def test_what_is_listed_is_cut_off_when_it_gets_long() -> None:
    assert listed([]) == ""
    assert listed(["a"]) == "a"
    assert listed("abc") == "a, b and c"
    assert listed("abcde") == "a, b, c, d and e", "one more is no longer than to say so"
    assert listed("abcdef") == "a, b, c, d and 2 more"


def test_one_thing_is_not_many() -> None:
    assert (counted(1, "record"), counted(0, "record"), percent(0.256)) == ("1 record", "0 records", "26 %")
