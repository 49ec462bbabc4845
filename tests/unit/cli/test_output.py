"""Documents as text and as JSON, once and repeatedly."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import pytest
from rich.console import Console

from fencepost.cli.output import Block, Fields, Paragraph, Table, as_text, drawn, watch, write
from fencepost.client.admin.answers import NamedPartition
from fencepost.client.failures import Unreachable
from fencepost.diagnose.words import plain


class Colour(Enum):
    DARK_RED = "as old brick"


@dataclass(frozen=True)
class Wall:
    where: NamedPartition
    colour: Colour
    stones: tuple[int | None, ...]
    problems: tuple[str, ...] = ()


WALL = Wall(NamedPartition("orders", 0), Colour.DARK_RED, (1, None))


def blocks(wall: Wall) -> Iterator[Block]:
    yield Table(("PLACE", "STONES", "AGE"), [(wall.where, 1200, "3 s"), (wall.where, None, None)])
    yield Fields([("place", wall.where), ("next", None)])
    yield Paragraph("What to do:\n- " + "word " * 30)


def test_numbers_are_aligned_right_and_a_missing_value_is_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert as_text(blocks(WALL)).splitlines() == [
        "PLACE     STONES  AGE",
        "orders-0    1200  3 s",
        "orders-0       -  -",
        "",
        "place  orders-0",
        "next   -",
        "",
        "What to do:",
        "- " + "word " * 14 + "word",
        "  " + "word " * 14 + "word",
    ]


def test_a_long_value_is_wrapped_beside_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    advice = "- wait\n- " + "word " * 12 + ":\n    fencepost txn list"
    assert as_text([Fields([("why", "no"), ("what to do", advice)])]).splitlines() == [
        "why         no",
        "what to do  - wait",
        "            - " + "word " * 8 + "word",
        "              word word word :",
        "                fencepost txn list",
    ]


def test_json_has_the_fields_of_the_document() -> None:
    assert plain(WALL) == {
        "where": {"topic": "orders", "partition": 0},
        "colour": "dark_red",
        "stones": [1, None],
        "problems": [],
    }


def test_problems_are_written_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    write(Wall(NamedPartition("orders", 0), Colour.DARK_RED, (), ("broker 2 is gone",)), blocks, as_json=True)
    shown = capsys.readouterr()
    assert json.loads(shown.out)["problems"] == ["broker 2 is gone"]
    assert shown.err == "warning: broker 2 is gone\n"


def test_watching_continues_while_the_cluster_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[object] = [WALL, Unreachable("no broker can be reached"), WALL, KeyboardInterrupt()]

    def collect() -> Wall:
        found = seen.pop(0)
        if isinstance(found, BaseException):
            raise found
        assert isinstance(found, Wall)
        return found

    watch(collect, blocks, as_json=True, every_ms=0)
    shown = capsys.readouterr()
    assert [json.loads(line)["colour"] for line in shown.out.splitlines()] == ["dark_red", "dark_red"]
    assert shown.err.startswith("warning: no broker can be reached\n")


def test_watching_reports_problems(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Wall] = [Wall(NamedPartition("orders", 0), Colour.DARK_RED, (), ("broker 2 is gone",))]

    def collect() -> Wall:
        if not seen:
            raise KeyboardInterrupt
        return seen.pop()

    watch(collect, blocks, as_json=False, every_ms=0)
    assert capsys.readouterr().err == "warning: broker 2 is gone\n"


def test_a_terminal_shows_the_same_lines_as_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    fields = Fields([("what to do", "word " * 30)])
    console = Console(width=60, file=io.StringIO())
    console.print(drawn(fields))
    assert isinstance(console.file, io.StringIO)
    shown = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert shown == [*as_text([fields]).splitlines(), ""]


def test_a_table_without_rows_is_not_shown() -> None:
    assert as_text([Table(("A", "B"), []), Paragraph("none")]) == "none"
