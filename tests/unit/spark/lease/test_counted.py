"""Lines of the log that a peer may cause any number of times."""

from __future__ import annotations

import logging

import pytest

from fencepost.spark.lease.counted import INTERVAL_MS, CountedWarnings


class Clock:
    now_ms = 0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def warnings(clock: Clock) -> CountedWarnings:
    return CountedWarnings(logging.getLogger("strangers"), lambda: clock.now_ms)


def test_the_first_line_is_written_and_the_others_are_counted_once_a_minute(
    warnings: CountedWarnings, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for minute in range(2):
        for peer in range(1000):
            warnings.warn("%s is refused\n\nhint: look for it", f"peer {peer}")
            warnings.report()
        clock.now_ms = INTERVAL_MS * (minute + 1)
        warnings.report()
    assert caplog.messages == [
        "peer 0 is refused\n\nhint: look for it",
        "999 more times: peer 0 is refused",
        "1000 more times: peer 0 is refused",
    ]


def test_after_a_quiet_minute_the_line_is_written_again(
    warnings: CountedWarnings, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    warnings.warn("%s is refused", "one")
    clock.now_ms = INTERVAL_MS
    warnings.report()
    warnings.warn("%s is refused", "two")
    assert caplog.messages == ["one is refused", "two is refused"]


def test_each_text_is_counted_for_itself_and_the_end_writes_what_was_counted(
    warnings: CountedWarnings, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        warnings.warn("%s is refused", "one")
        warnings.warn("%s gives way", "one")
    warnings.warn("once")
    warnings.close()
    assert caplog.messages == [
        *("one is refused", "one gives way", "once"),
        *("2 more times: one is refused", "2 more times: one gives way"),
    ]
