"""Clients that attack the operator: with ids and records that steer terminals and forge lines."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer

from fencepost.child import child_environment
from fencepost.cli import main
from fencepost.protocol.messages import ConsumerGroupHeartbeatRequest
from fencepost.testing import Broker
from tests.command_line import start_fencepost
from tests.readers.reading import TIMEOUT_S, connect
from tests.txn_tools import SETTINGS, commit_offsets, producer_of

# Erase the line, write to the clipboard, change the direction, begin new lines in four ways, hide, delete.
INVISIBLE = "\x1b[2K\x1b]52;c;cm0=\x07\x9b2J\u202e\u200b\r\n\u2028\x85\x7f\t"
FORGED = "error: all is well, run `rm`"
HOSTILE = f"x{INVISIBLE}\n{FORGED}\n\nhint: {FORGED}"
DASHED = f"--yes{HOSTILE}"
# How the beginning of it is shown.
SHOWN, SHOWN_IN_JSON = r"x\x1b[2K", r"x\u001b[2K"
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
    ("group", "describe", "static-member"),
    ("group", "describe", "own-member-id"),
    ("doctor", "--max-age", "0ms"),
    ("tail", "orders", "--from", "earliest"),
    ("topic", "list"),
    ("topic", "describe", "orders"),
    ("user", "list"),
    ("cluster", "nodes"),
)
WATCHED = (
    ("txn", "list"),
    ("txn", "describe", "--", HOSTILE),
    ("txn", "lso"),
    ("group", "list"),
    ("group", "describe", "own-member-id"),
)
# What the live display of --watch writes itself: colours, the other screen, the cursor. Ctrl-C may cut one of them off;
# another one follows then.
OF_THE_DISPLAY = re.compile(r"\x1b\[([0-9;]*m|\?1049[hl]|\?25[hl]|H)|\x1b(\[[0-9;]*)?(?=\x1b)")
terminals = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")


class Attacked(NamedTuple):
    broker: Broker
    producers: list[Producer]


@pytest.fixture(scope="module")
def attacked() -> Iterator[Attacked]:
    patient = {"group.consumer.session.timeout.ms": "600000"}
    with Broker(settings=SETTINGS | patient, topics={"orders": 1, "read": 1}) as broker:
        producers = []
        for id_ in (HOSTILE, DASHED):
            producer = producer_of(broker.bootstrap_servers, id_, client_id=HOSTILE)
            producer.begin_transaction()
            producer.produce("orders", HOSTILE, key=HOSTILE, headers={HOSTILE: HOSTILE.encode()}, partition=0)
            assert producer.flush(TIMEOUT_S) == 0
            producers.append(producer)
        commit_offsets(broker.bootstrap_servers, HOSTILE, {("orders", 0): 0})
        with connect(broker.bootstrap_servers) as client:
            # In the consumer protocol, a client chooses the id of its member.
            joining = ConsumerGroupHeartbeatRequest(
                "own-member-id", HOSTILE, 0, HOSTILE, HOSTILE, 60_000, ["read"], topic_partitions=[]
            )
            assert client.call(joining, 1, HOSTILE).error_code == 0
        servers = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
        named = {"client.id": HOSTILE, "group.instance.id": HOSTILE, "group.id": "static-member"}
        consumer = Consumer(servers | named)
        joined: list[object] = []
        consumer.subscribe(["read"], on_assign=lambda *_: joined.append(True))
        while not joined:
            assert consumer.poll(1) is None
        yield Attacked(broker, producers)
        consumer.close()


@pytest.fixture(autouse=True)
def servers(attacked: Attacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", attacked.broker.bootstrap_servers)


def invisible_in(text: str) -> set[str]:
    return {char for char in text if not char.isprintable() and char != "\n"}


def forged_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.lstrip().startswith((FORGED, f"hint: {FORGED}"))]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: "-".join(words[:2]))
def test_a_pipe_gets_no_invisible_character_and_no_line_that_an_id_began(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    main(command)
    shown = capsys.readouterr()
    assert not invisible_in(shown.out + shown.err)
    assert not forged_lines(shown.out + shown.err)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: "-".join(words[:2]))
def test_json_has_the_real_values_and_is_ascii(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    main((*command[:2], "--json", *command[2:]))
    out = capsys.readouterr().out
    assert out.isascii()
    assert not invisible_in(out)
    if command in (("txn", "list"), ("txn", "lso")):
        assert json.dumps(HOSTILE) in out


@terminals
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: "-".join(words[:2]))
def test_a_terminal_gets_no_sequence_but_those_for_colours(command: tuple[str, ...]) -> None:
    text, exit_code = on_a_terminal(*command)
    assert exit_code in (0, 1, 3)
    assert not invisible_in(re.sub(r"\x1b\[[0-9;]*m", "", text))


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("command", WATCHED, ids=lambda words: "-".join(words[:2]))
def test_a_watch_into_a_pipe_is_as_harmless_as_one_look(command: tuple[str, ...], as_json: bool) -> None:
    options = ("--watch", "--every", "100ms", *(("--json",) if as_json else ()))
    with start_fencepost(*command[:2], *options, *command[2:]) as process:
        assert process.stdout is not None
        said = ""
        while said.count(SHOWN_IN_JSON if as_json else SHOWN) < 6:
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr is not None else ""
            said += line
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert not invisible_in(said + out + err)
    assert not forged_lines(said + out + err)


@terminals
@pytest.mark.parametrize("command", WATCHED, ids=lambda words: "-".join(words[:2]))
def test_a_watch_on_a_terminal_writes_no_sequence_but_those_of_its_own_display(command: tuple[str, ...]) -> None:
    options = ("--watch", "--every", "100ms")
    text, _ = on_a_terminal(*command[:2], *options, *command[2:], until=lambda shown: shown.count(SHOWN) >= 6)
    assert SHOWN in text
    assert not invisible_in(OF_THE_DISPLAY.sub("", text))


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_the_tap_shows_no_invisible_character_and_no_line_that_an_id_began(attacked: Attacked, as_json: bool) -> None:
    options = ("--listen", "127.0.0.1:0", "--fetches", *(("--json",) if as_json else ()))
    with start_fencepost("tap", *options) as process:
        attack_through(address_of(process))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (SHOWN_IN_JSON if as_json else SHOWN) in out
    assert "EndTxn" in out
    assert not invisible_in(out + err)
    assert not forged_lines(out + err)


@terminals
def test_the_tap_writes_no_sequence_to_a_terminal_but_those_for_colours(attacked: Attacked) -> None:
    main_end, other_end = os.openpty()
    with start_fencepost("tap", "--listen", "127.0.0.1:0", stdout=other_end) as process:
        os.close(other_end)
        attack_through(address_of(process))
        process.send_signal(signal.SIGINT)
        text = _all_of(main_end, lambda shown: False)
    assert SHOWN in text
    assert not invisible_in(re.sub(r"\x1b\[[0-9;]*m", "", text))


def address_of(tap: subprocess.Popen[str]) -> str:
    assert tap.stderr is not None
    word, _, address = tap.stderr.readline().strip().partition(" ")
    assert word == "ready"
    return address


def attack_through(address: str) -> None:
    producer = producer_of(address, HOSTILE[:-2], client_id=HOSTILE)
    producer.begin_transaction()
    producer.produce("orders", b"")
    producer.commit_transaction(TIMEOUT_S)


def on_a_terminal(*command: str, until: Callable[[str], bool] = lambda shown: False) -> tuple[str, int]:
    """What a command writes to a terminal, and its exit code. Ctrl-C ends it as soon as `until` says so."""
    main_end, other_end = os.openpty()
    with start_fencepost(*command, stdout=other_end, stderr=other_end) as process:
        os.close(other_end)

        def is_enough(shown: str) -> bool:
            if until(shown):
                process.send_signal(signal.SIGINT)
                return True
            return False

        return _all_of(main_end, is_enough), process.wait(TIMEOUT_S)


def _all_of(terminal: int, is_enough: Callable[[str], bool]) -> str:
    """All that is written to a terminal. `is_enough` is asked until it says so."""
    shown, was_enough = b"", False
    while chunk := _read(terminal):
        shown += chunk
        was_enough = was_enough or is_enough(shown.decode(errors="replace"))
    os.close(terminal)
    return shown.decode().replace("\r\n", "\n")


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
