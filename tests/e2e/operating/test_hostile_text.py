"""Clients that attack the operator: with ids and records that steer terminals and forge lines."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from fencepost.child import child_environment
from fencepost.cli import main
from fencepost.testing import Broker
from tests.readers.reading import TIMEOUT_S
from tests.txn_tools import SETTINGS, commit_offsets, producer_of

# Erase the line, write to the clipboard, change the direction, begin new lines in four ways, hide, delete.
INVISIBLE = "\x1b[2K\x1b]52;c;cm0=\x07\x9b2J\u202e\u200b\r\n\u2028\x85\x7f\t"
FORGED = "error: all is well, run `rm`"
HOSTILE = f"x{INVISIBLE}\n{FORGED}\n\nhint: {FORGED}"
DASHED = f"--yes{HOSTILE}"
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR|TXN) .*")
COMMANDS = (
    ("txn", "list"),
    ("txn", "list", "--idle", "0ms"),
    ("txn", "describe", "--", HOSTILE),
    ("txn", "explain", "--", HOSTILE),
    ("txn", "explain", "--", DASHED),
    ("txn", "explain", "--", HOSTILE[:-1]),
    ("txn", "history", "--rpc", "--", HOSTILE),
    ("txn", "producers", "orders"),
    ("txn", "lso"),
    ("txn", "hanging"),
    ("group", "list"),
    ("group", "describe", "--", HOSTILE),
    ("group", "describe", "--", HOSTILE[:-1]),
    ("doctor", "--max-age", "0ms"),
    ("tail", "orders", "--from", "earliest"),
    ("topic", "list"),
    ("topic", "describe", "orders"),
    ("user", "list"),
    ("cluster", "nodes"),
)


class Attacked(NamedTuple):
    broker: Broker
    producers: list[Producer]


@pytest.fixture(scope="module")
def attacked() -> Iterator[Attacked]:
    with Broker(settings=SETTINGS, topics={"orders": 1}) as broker:
        producers = []
        for id_ in (HOSTILE, DASHED):
            producer = producer_of(broker.bootstrap_servers, id_, client_id=HOSTILE)
            producer.begin_transaction()
            producer.produce("orders", HOSTILE, key=HOSTILE, headers={HOSTILE: HOSTILE.encode()}, partition=0)
            assert producer.flush(TIMEOUT_S) == 0
            producers.append(producer)
        commit_offsets(broker.bootstrap_servers, HOSTILE, {("orders", 0): 0})
        yield Attacked(broker, producers)


@pytest.fixture(autouse=True)
def servers(attacked: Attacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", attacked.broker.bootstrap_servers)


def invisible_in(text: str) -> set[str]:
    return {char for char in text if not char.isprintable() and char != "\n"}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: "-".join(words[:2]))
def test_a_pipe_gets_no_invisible_character_and_no_line_that_an_id_began(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    main(command)
    shown = capsys.readouterr()
    assert not invisible_in(shown.out + shown.err)
    lines = (shown.out + shown.err).splitlines()
    assert not [line for line in lines if line.lstrip().startswith((FORGED, f"hint: {FORGED}"))]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: "-".join(words[:2]))
def test_json_has_the_real_values_and_is_ascii(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    main((*command[:2], "--json", *command[2:]))
    out = capsys.readouterr().out
    assert out.isascii()
    assert not invisible_in(out)
    if command in (("txn", "list"), ("txn", "lso")):
        assert json.dumps(HOSTILE) in out


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: "-".join(words[:2]))
def test_a_terminal_gets_no_sequence_but_those_for_colours(command: tuple[str, ...]) -> None:
    main_end, other_end = os.openpty()
    words = (sys.executable, "-m", "fencepost", *command)
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=other_end, stderr=other_end) as process:
        os.close(other_end)
        shown = b""
        while chunk := _read(main_end):
            shown += chunk
    os.close(main_end)
    assert process.returncode in (0, 1, 3)
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n")
    assert not invisible_in(text)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65_536)
    except OSError:  # Linux: the other end is closed.
        return b""


def test_the_log_has_one_line_for_each_event(attacked: Attacked) -> None:
    with Broker(log_txns=True) as broker:
        producer = producer_of(broker.bootstrap_servers, HOSTILE, client_id=HOSTILE)
        producer.begin_transaction()
        producer.produce("orders", b"")
        assert producer.flush(TIMEOUT_S) == 0
        broker.advance_clock(1_000_000)  # Beyond its timeout.
        lines = broker.log.split("\n")
    assert any("was open for" in line for line in lines)
    assert any(" TXN     timeout" in line for line in lines)
    assert not invisible_in("".join(lines))
    assert [line for line in lines if line and not LOG_LINE.fullmatch(line)] == []


@pytest.mark.parametrize("id_", [HOSTILE, DASHED])
def test_the_command_that_explain_prints_works_as_it_stands(
    id_: str, attacked: Attacked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(("txn", "explain", "--bootstrap", attacked.broker.bootstrap_servers, "--", id_))
    [line] = [line.strip() for line in capsys.readouterr().out.splitlines() if "fencepost txn fence" in line]
    program = tmp_path / "fencepost"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m fencepost "$@"\n')
    program.chmod(0o755)
    env = child_environment() | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    # Without a terminal, there is no question.
    sure = line.replace("txn fence", "txn fence --yes", 1)
    done = subprocess.run(["bash", "-c", sure], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not invisible_in(done.stdout + done.stderr)
    [txn] = [txn for txn in attacked.broker.transactions() if txn.transactional_id == id_]
    assert txn.state == "Empty"
