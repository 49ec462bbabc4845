"""Clients in programs of their own, which all understand the same steps, so that one scenario does for all of them.

A player is a program around one client library: it takes a step a line on stdin, as JSON, and answers with a line
on stdout, `{"value": ...}` or `{"error": NAME, "text": ...}`. The steps:

    hello                                               the client and its version
    open name [transactional_id] [timeout_ms]           a producer; a transactional one registers at once
    begin name    commit name    abort name    close name
    send name topic partition values                    and wait until the broker has taken them
    read topic partitions isolation until               the values of each partition, up to the one called `until`
    mover name group transactional_id source target session_ms
                                                        a consumer in a group, and a transactional producer
    move name count end                                 so many records from source to target, with the offsets, in a
                                                        transaction; `end` is commit, abort, or none to leave it open

Java and franz-go also understand

    process name    progress name    stop name          move in the background; how many so far; leave

and take `request_ms` in open and mover, how long they wait for an answer; Java's mover takes the `protocol` of its
group, classic or consumer.

A player dies by kill -9 as any program does, which a client in the test's own process could not.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Self

import pytest

from tests.engines.java import ROOT, appear_whole, program_command

HERE = Path(__file__).parent
TOOLS = ROOT / ".tools"
ANSWER_TIMEOUT_S = 60.0
# A build from nothing compiles Go's own library too.
SETUP_TIMEOUT_S = 280.0
_SETTING_UP = threading.Lock()


class Refused(Exception):
    """The client raised an error; `name` is Kafka's or the client's own name of it."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


class Player:
    """One running program. Steps are methods: `player.send(name="p", topic="t", partition=0, values=["v"])`."""

    def __init__(self, command: Sequence[str]) -> None:
        env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self._process = subprocess.Popen(command, env=env, text=True, **pipes)  # type: ignore[call-overload]
        self._answers: Queue[str] = Queue()
        self._stderr: list[str] = []
        for read in (self._read_answers, self._read_stderr):
            threading.Thread(target=read, daemon=True).start()

    def __getattr__(self, step: str) -> Callable[..., Any]:
        return lambda **given: self._play(step, **given)

    def _play(self, step: str, **given: Any) -> Any:
        try:
            self._process.stdin.write(json.dumps({"do": step, **given}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(f"the player is gone: {self._last_words()}") from None
        try:
            line = self._answers.get(timeout=ANSWER_TIMEOUT_S)
        except Empty:
            raise AssertionError(f"{step}: no answer in {ANSWER_TIMEOUT_S:g} s; {self._last_words()}") from None
        if not line:
            raise AssertionError(f"{step}: the player ended; {self._last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"], answer["text"])
        return answer["value"]

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            # What a broken pipe still holds is of no interest.
            with suppress(OSError):
                pipe.close()

    def _read_answers(self) -> None:
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _read_stderr(self) -> None:
        self._stderr.extend(self._process.stderr)

    def _last_words(self) -> str:
        return "".join(self._stderr[-20:]) or "it said nothing"


# --- the programs -----------------------------------------------------------------------------------------


def python_player(module: str, servers: str) -> list[str]:
    return [sys.executable, "-m", f"tests.e2e.clients.python.{module}", servers]


def java_player(servers: str) -> list[str]:
    return program_command(HERE / "java" / "Player.java", servers)


def franz_go_player(servers: str) -> list[str]:
    if reason := why_no_franz_go():
        pytest.skip(reason)
    return [str(franz_go_program()), servers]


def kafkajs_player(servers: str) -> list[str]:
    return ["node", str(HERE / "kafkajs" / "player.js"), servers, str(kafkajs())]


COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "confluent-kafka": lambda servers: python_player("confluent_player", servers),
    "aiokafka": lambda servers: python_player("aiokafka_player", servers),
    "kafka-python": lambda servers: python_player("kafka_python_player", servers),
    "java": java_player,
    "franz-go": franz_go_player,
    "kafkajs": kafkajs_player,
}


def start_player(client: str, servers: str) -> Player:
    """Skips the test, with the reason, where the client cannot be had."""
    return Player(COMMANDS[client](servers))


def franz_go_program() -> Path:
    """Where it is built, once for each state of its sources."""
    sources = [HERE / "franz_go" / name for name in ("go.mod", "go.sum", "main.go")]
    return TOOLS / f"franz-go-{_digest(sources)}" / "player"


def why_no_franz_go() -> str | None:
    """Why the program cannot be had, or None if it is there."""
    program = franz_go_program()
    return None if program.exists() else _set_up_once("go", _build_franz_go, program)


def kafkajs() -> Path:
    """The folder with its node_modules."""
    sources = [HERE / "kafkajs" / name for name in ("package.json", "package-lock.json")]
    home = TOOLS / f"kafkajs-{_digest(sources)}"
    if not home.exists() and (reason := _set_up_once("npm", _install_kafkajs, home)):
        pytest.skip(reason)
    return home


def _digest(sources: Sequence[Path]) -> str:
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]


def _set_up_once(tool: str, set_up: Callable[[Path], str | None], result: Path) -> str | None:
    """Why `result` cannot be had, or None. A failure is not tried again for every test."""
    with _SETTING_UP:
        return _set_up(tool, set_up, result)


@cache
def _set_up(tool: str, set_up: Callable[[Path], str | None], result: Path) -> str | None:
    if shutil.which(tool) is None:
        return f"no {tool} on the path"
    return set_up(result)


def _build_franz_go(program: Path) -> str | None:
    # No other toolchain is fetched for it.
    env = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    download = ["go", "mod", "download"]
    if reason := _run(download, HERE / "franz_go", env) and _run(download, HERE / "franz_go", env):
        # Without what the machine calls its registry.
        return f"franz-go cannot be fetched: {reason.rpartition(': ')[2]}"
    incoming = program.with_name(f"incoming-{os.getpid()}")
    # Without optimisation it is built in half the time.
    options = ["-mod=readonly", "-buildvcs=false", "-gcflags=all=-N -l"]
    command = ["go", "build", *options, "-o", str(incoming), "."]
    reason = _run(command, HERE / "franz_go", env)
    # All that it needs is here, so this is no reason to skip.
    assert reason is None, f"franz-go's player does not build: {reason}"
    # It appears whole or not at all.
    incoming.rename(program)
    return None


def _install_kafkajs(home: Path) -> str | None:
    incoming = home.with_name(f"{home.name}.incoming-{os.getpid()}")
    incoming.mkdir(parents=True)
    try:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / "kafkajs" / name, incoming)
        command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        # Where there is no registry, npm would be long in finding that out.
        command += ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=20000"]
        if reason := _run(command, incoming, {}, telling_line=0):
            return f"kafkajs cannot be installed: {reason}"
        appear_whole(incoming, home)
    finally:
        shutil.rmtree(incoming, ignore_errors=True)
    return None


def _run(command: Sequence[str], cwd: Path, env: dict[str, str], telling_line: int = -1) -> str | None:
    """What went wrong, in a line, or None."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=os.environ | env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SETUP_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"`{' '.join(command[:2])}` did not end in {SETUP_TIMEOUT_S:g} s"
    if done.returncode == 0:
        return None
    said = (done.stderr or done.stdout).strip().splitlines()
    return said[telling_line] if said else f"`{' '.join(command[:2])}` ended with {done.returncode}"
