"""Every command has help with an example, and answers mistakes in the same way."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fencepost import __version__
from fencepost.cli import fencepost, main
from fencepost.cli.broker import parse_address
from fencepost.cli.options import EXIT_CODES, WHEN_1, Unanswered
from fencepost.cli.streams import Failure, WrongUse
from fencepost.diagnose.explain.findings import Cause

ROOT = Path(__file__).resolve().parents[3]


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from commands(below, (*path, name))


ALL = list(commands(fencepost))
NAMES = [" ".join(path) or "fencepost" for path, _ in ALL]


@pytest.mark.parametrize(("path", "command"), ALL, ids=NAMES)
def test_every_command_has_help_with_an_example(
    path: tuple[str, ...], command: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Example:" in shown
    assert f"fencepost {' '.join(path)}".strip() in shown
    for option in command.params:
        # click has no help for arguments; the text above the options explains them.
        if isinstance(option, click.Option):
            assert option.hidden or option.help, f"{option.name} has no help"


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["broker", "--nonsense"], ["demo", "nonsense"], ["demo", "brew", "--attempts", "0"]],
    ids=" ".join,
)
def test_a_wrong_call_gets_an_error_a_hint_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    error, empty, hint = shown.err.splitlines()
    assert error.startswith("error: ")
    assert empty == ""
    assert hint.startswith("hint: `fencepost")


def test_every_exit_code_of_a_failure_is_on_the_commands_page() -> None:
    kinds: list[type[click.ClickException]] = [Failure, Unanswered, WrongUse]
    page = (ROOT / "docs/reference/commands/README.md").read_text()
    for code in {0, 130, *(kind.exit_code for kind in kinds)}:
        assert f"| {code} | {EXIT_CODES[code]} |" in page


def test_exit_code_1_is_explained_only_for_commands_that_exist() -> None:
    page = (ROOT / "docs/reference/commands/README.md").read_text()
    for name, meaning in WHEN_1.items():
        assert name in NAMES
        assert f"| `fencepost {name}` | {meaning} |" in page


def test_exit_code_1_is_explained_for_every_command() -> None:
    commands = [" ".join(path) for path, command in ALL if not isinstance(command, click.Group)]
    assert [name for name in commands if not any(f"{name} ".startswith(f"{row} ") for row in WHEN_1)] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--set", "num.partitions=none"],
        ["--set", "num.partitions=0"],
        ["--set", "no.such.setting.at.all=1"],
        ["--set", "nonsense"],
        ["--set", "advertised.listeners=nonsense"],
        ["--config", "/no/such/file"],
    ],
    ids=" ".join,
)
def test_a_wrong_setting_of_the_broker_is_a_wrong_call_with_a_hint(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["broker", "--memory", "--listen", "127.0.0.1:0", *arguments]) == 2
    error, empty, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ")
    assert empty == ""
    assert hint.startswith("hint: ")
    assert "--help" not in hint


def test_the_help_of_explain_names_every_cause(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["txn", "explain", "--help"]) == 0
    words = set(re.findall(r"[a-z_]+", capsys.readouterr().out))
    assert {cause.name.lower() for cause in Cause} <= words


def test_the_number_of_brokers_has_a_limit(capsys: pytest.CaptureFixture[str]) -> None:
    for number in ("0", "17"):
        assert main(["broker", "--brokers", number, "--memory"]) == 2
        assert f"--brokers {number} is not possible\n\nhint: choose a number from 1 to 16" in capsys.readouterr().err
    # 16 is accepted: the next mistake is the one that is reported.
    assert main(["broker", "--brokers", "16"]) == 2
    assert "no place for the data" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["demo"]], ids=["fencepost", "demo"])
def test_a_group_alone_shows_its_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    assert "Commands:" in capsys.readouterr().out


def test_the_version_is_the_version_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fencepost {__version__}\n"
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == __version__


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:9092", ("::1", 9092)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["9092", "localhost", "localhost:", ":9092", "::1:9092", "[::1]", "h:-1", "h:65536"])
def test_any_other_text_is_not_an_address(text: str) -> None:
    with pytest.raises(WrongUse, match="hint: "):
        parse_address(text)


@pytest.mark.parametrize(
    ("words", "offered"),
    [("fencepost ", "broker"), ("fencepost txn ", "explain"), ("fencepost broker --", "--advertise")],
)
def test_a_shell_can_complete_commands_and_options(
    words: str, offered: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_FENCEPOST_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    with pytest.raises(SystemExit):
        main([])
    assert f"plain,{offered}" in capsys.readouterr().out.splitlines()


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
