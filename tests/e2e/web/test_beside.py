"""`fencepost broker --web`: the workbench beside a broker. And `fencepost web --tap`: a tap beside the workbench."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fencepost.testing import Broker
from tests.command_line import run_fencepost, start_fencepost
from tests.web_server import TIMEOUT_S, web_server


@contextmanager
def broker_with_web(*more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    arguments = ("--memory", "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0", *more)
    with start_fencepost("broker", *arguments) as process:
        try:
            yield process, wait_to_hear(process, r"the workbench is at (\S+)")[1]
        finally:
            process.kill()


def wait_to_hear(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """Where the pattern is in what the process says on stderr."""
    assert process.stderr is not None
    said = ""
    while not (found := re.search(pattern, said)):
        line = process.stderr.readline()
        assert line, said
        said += line
    return found


def overview(url: str) -> dict[str, object]:
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        document: dict[str, object] = json.load(answer)
        return document


def is_gone(url: str) -> bool:
    try:
        overview(url)
    except urllib.error.HTTPError:
        return False
    except (urllib.error.URLError, ConnectionError):
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_workbench_runs_beside_a_broker_and_ends_with_it(number: int) -> None:
    with broker_with_web("--brokers", "2") as (process, url):
        assert overview(url)["broker_count"] == 2
        process.send_signal(number)
        assert process.wait(TIMEOUT_S) == (0 if number == signal.SIGTERM else -signal.SIGKILL)
        while not is_gone(url):
            pass


def test_the_broker_prints_one_line_with_its_own_address() -> None:
    with broker_with_web() as (process, _):
        assert process.stdout is not None
        assert re.fullmatch(r"ready 127\.0\.0\.1:\d+\n", process.stdout.readline())
        process.terminate()
        assert process.stdout.read() == ""


def test_a_workbench_that_other_machines_reach_or_without_a_plain_listener_is_refused() -> None:
    done = run_fencepost("broker", "--memory", "--web", "0.0.0.0:8080")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        "error: other machines reach 0.0.0.0:8080, and --web has no token",
    )
    listeners = "listeners=SASL_PLAINTEXT://127.0.0.1:0"
    done = run_fencepost("broker", "--memory", "--web", "127.0.0.1:0", "--set", listeners)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: --web needs a listener without login and TLS")


def test_a_broker_whose_workbench_cannot_start_runs_and_names_the_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with start_fencepost("broker", "--memory", "--listen", "127.0.0.1:0", "--web", address) as process:
            try:
                wait_to_hear(process, rf"error: cannot listen on {address}: Address already in use")
                wait_to_hear(process, r"warning: the broker runs without the workbench\n\nhint: .* --web HOST:PORT")
                process.terminate()
                assert process.wait(TIMEOUT_S) == 0
            finally:
                process.kill()


def test_a_broker_that_ends_before_its_workbench_is_ready_does_not_warn() -> None:
    with start_fencepost("broker", "--memory", "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0") as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready ")
            process.terminate()
            _, said = process.communicate(timeout=TIMEOUT_S)
            assert "warning" not in said
        finally:
            process.kill()


def test_a_workbench_with_a_tap_says_where_the_tap_is(broker: Broker) -> None:
    with web_server(broker.bootstrap_servers, "--tap", "127.0.0.1:0") as server:
        address = wait_to_hear(server.process, r"the tap is at (\S+)")[1]
        assert address == server.document("/tap")["address"]
        assert not address.endswith(":0")
