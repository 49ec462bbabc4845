"""Documents as text and as JSON, and the options that the commands about clusters share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import click
import pytest

from fencepost.cli import main
from fencepost.cli.options import ClusterOptions, Duration
from fencepost.cli.output import Block, Fields, Paragraph, Table, as_text, plain, watch, write
from fencepost.client.admin.answers import NamedPartition
from fencepost.client.failures import Unreachable


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


@pytest.mark.parametrize(
    ("text", "ms"), [("500ms", 500), ("10s", 10_000), ("1.5m", 90_000), ("2 h", 7_200_000), ("7d", 604_800_000)]
)
def test_a_duration_is_a_number_and_a_unit(text: str, ms: int) -> None:
    assert Duration().convert(text, None, None) == ms


@pytest.mark.parametrize("text", ["10", "s", "-1s", "1w", "1m30s", "", "²s", "٣s"])
def test_any_other_text_is_not_a_duration(text: str) -> None:
    with pytest.raises(click.BadParameter, match="such as 500ms"):
        Duration().convert(text, None, None)


@pytest.mark.parametrize("text", ["25d", "99999999999d", "9" * 400 + "ms"])
def test_a_duration_that_is_too_long_is_refused_with_the_limit(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is too long: at most 24d"):
        Duration(24).convert(text, None, None)
    assert Duration().convert("90d", None, None) == 90 * 86_400_000


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# ours\nbootstrap.servers=a:1\nsasl.username: me\nsasl.password = s3cr=t\n")
    options = ClusterOptions("b:2", str(file), ("sasl.username=you",))
    assert options.settings() == {"bootstrap.servers": "b:2", "sasl.username": "you", "sasl.password": "s3cr=t"}
    assert ClusterOptions(None, str(file), ()).settings()["bootstrap.servers"] == "a:1"


def test_settings_of_kafka_s_tools_without_effect_are_ignored_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("default.api.timeout.ms=20000\nrequest.timeout.ms=5000\nretries=3\n")
    assert ClusterOptions("b:2", str(file), ()).settings() == {"bootstrap.servers": "b:2", "request.timeout.ms": "5000"}
    assert capsys.readouterr().err == (
        "warning: default.api.timeout.ms has no effect on this tool\nwarning: retries has no effect on this tool\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["txn", "list"], "no cluster is named"),
        (["txn", "list", "--bootstrap", ","], "bootstrap.servers=, names no broker"),
        (["txn", "list", "--bootstrap", "localhost:²"], "expected HOST:PORT"),
        (["txn", "list", "--bootstrap", "h:1", "--set", "ssl.truststore.location=x"], "hint: ssl.ca.location=FILE"),
        (["txn", "list", "--producer-id", str(2**63)], "is not in the range"),
        (["txn", "lso", "--watch", "--every", "99999999999d"], "99999999999d is too long: at most 24d"),
        (["txn", "producers", "orders:" + "9" * 5000], "is not a partition"),
        (["demo", "isolation", "--timeout", "99999d"], "99999d is too long: at most 24d"),
        (["broker", "--memory", "--listen", "h:" + "9" * 5000], "there is no port"),
        (["txn", "list", "--bootstrap", "localhost"], "expected HOST:PORT"),
        (["txn", "list", "--bootstrap", "h:1", "--set", "nonsense"], "--set nonsense is not a setting"),
        (["txn", "list", "--bootstrap", "h:1", "--command-config", "/no/such/file"], "cannot read the settings"),
        (["txn", "list", "--id", "("], "is not a regular expression"),
        (["txn", "list", "--longer-than", "10"], "is not a duration"),
        (["txn", "producers", "orders:x"], "orders:x is not a partition"),
        (["txn", "abort"], "which transaction?"),
        (["txn", "abort", "--topic", "orders"], "which transaction?"),
        (["txn", "abort", "t1", "--topic", "orders", "--partition", "0"], "which transaction?"),
        (["txn", "abort", "t1", "--producer-id", "4"], "an ID has only one transaction"),
        (["error"], "which error?"),
        (["error", "47", "--list"], "both --list and 47"),
        (["error", "--nonsense"], "No such option: --nonsense"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_call_is_refused_before_the_cluster_is_asked(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FENCEPOST_BOOTSTRAP", raising=False)
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert "\n\nhint: " in shown.err


def test_an_unreachable_cluster_has_its_own_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["txn", "lso", "--max-age", "1s", "--bootstrap", "127.0.0.1:1"]) == 3
    assert "cannot connect to 127.0.0.1:1" in capsys.readouterr().err


def test_an_error_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["error", "-1", "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert (explained["name"], explained["effect"], explained["then"]) == ("UNKNOWN_SERVER_ERROR", "unknown", "abort")
    assert main(["error", "--list"]) == 0
    assert "PRODUCER_FENCED" in capsys.readouterr().out
    assert main(["error", "101"]) == 0
    assert "A transactional client does not receive this error." in capsys.readouterr().out
    assert main(["error", "PRODUCER_FENCD"]) == 1
    assert "hint: did you mean PRODUCER_FENCED" in capsys.readouterr().err
