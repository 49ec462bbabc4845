"""Lines that are printed in a thread of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TextIO

import pytest

from fencepost.cli.tap import PrintingThread

LONG = "x" * 200_000  # More than a pipe takes.


@pytest.fixture
def pipe() -> Iterator[tuple[TextIO, TextIO]]:
    """Its end for reading, and its end for writing."""
    reader, writer = os.pipe()
    with os.fdopen(reader, encoding="utf-8") as lines, os.fdopen(writer, "w", encoding="utf-8") as stream:
        yield lines, stream


def printing_to(stream: TextIO, most_waiting: int = 10) -> PrintingThread[str]:
    return PrintingThread(stream, str, lambda count: f"{count} left out", most_waiting)


def test_lines_are_printed_in_order(pipe: tuple[TextIO, TextIO]) -> None:
    lines, stream = pipe
    printing = printing_to(stream)
    for line in ("a", "b\u2713", "c"):
        printing.add(line)
    printing.end()
    assert [lines.readline() for _ in range(3)] == ["a\n", "b\u2713\n", "c\n"]


def test_lines_that_find_no_place_are_counted_where_they_would_be(pipe: tuple[TextIO, TextIO]) -> None:
    lines, stream = pipe
    printing = printing_to(stream, most_waiting=2)
    printing.add(LONG)
    while printing._waiting:
        pass  # Until the thread has taken it. It waits for a reader then.
    for line in ("a", "b", "c", "d"):
        printing.add(line)
    assert [lines.readline().strip() for _ in range(4)] == [LONG, "a", "b", "2 left out"]
    printing.add("e")
    assert lines.readline() == "e\n"
    printing.end()


def test_a_reader_that_takes_no_lines_does_not_hold_up_the_end(
    pipe: tuple[TextIO, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.cli.tap.END_S", 0.01)
    lines, stream = pipe
    printing = printing_to(stream)
    printing.add(LONG)
    printing.end()
    assert printing._thread.is_alive()
    assert lines.readline().strip() == LONG
    printing._thread.join()


def test_the_error_of_a_reader_that_has_gone_is_raised_where_lines_are_added(pipe: tuple[TextIO, TextIO]) -> None:
    lines, stream = pipe
    lines.close()
    printing = printing_to(stream)
    printing.add("a")
    printing._thread.join()
    with pytest.raises(BrokenPipeError):
        printing.add("b")
    with pytest.raises(BrokenPipeError):
        printing.end()
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # For what its buffer holds.
