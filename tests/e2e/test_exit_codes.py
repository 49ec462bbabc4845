"""The exit codes of the commands, each row of the table on the commands' page with an example."""

from __future__ import annotations

import math
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.child import child_environment, python_module
from fencepost.cli import main
from fencepost.cli.groups import ReaderGone
from fencepost.cli.options import EXIT_CODES, FIRST_PATIENCE_S, NEVER, WHEN_1
from fencepost.client.client import FIRST_PAUSE_S
from fencepost.testing import Broker
from tests.command_line import closed_pipe, start_fencepost
from tests.examples import example_broker
from tests.readers.reading import TIMEOUT_S

# The transaction that hangs.
ABORT = "txn abort --topic audit --partition 0 --yes"
OK, ONE, WRONG_USE, UNANSWERED = 0, 1, 2, 3
# On the broker of the examples: `orders-sink-3` has an open transaction, `audit-1` one that hangs.
ON_THE_BROKER = [
    ("txn list", OK),
    ("txn list --state PrepareCommit", OK),
    ("txn list --longer-than 1d", OK),
    ("txn list --id orders-.*", OK),
    ("txn list --id orders-.* --longer-than 1d", OK),
    ("txn list --id orders-.* --state Empty", OK),
    ("txn list --id nothing.*", ONE),
    ("txn list --id nothing.* --state Ongoing", ONE),
    ("txn list --id orders-*", ONE),
    ("txn list --id [", WRONG_USE),
    ("txn list --state nonsense", WRONG_USE),
    ("txn describe orders-sink-3", OK),
    ("txn describe nosuch", ONE),
    ("txn history orders-sink-3 --rpc", OK),
    ("txn history nosuch", ONE),
    ("txn explain orders-sink-3", OK),
    ("txn explain orders-sink-1", OK),
    ("txn explain nosuch", ONE),
    ("txn explain audit-1", ONE),
    ("txn producers orders", OK),
    ("txn producers nosuch", ONE),
    ("txn producers orders:9", ONE),
    ("txn producers orders:x", WRONG_USE),
    ("txn producers zz*", ONE),  # A name that no topic can have.
    ("txn lso", OK),
    ("txn lso nosuch", ONE),
    ("txn lso zz*", ONE),
    ("txn lso orders:0", OK),
    ("txn lso orders:9", ONE),
    ("txn lso orders:x", WRONG_USE),
    ("txn lso --max-age 1d", OK),
    ("txn lso --max-age 1ms", ONE),
    ("txn lso --max-age soon", WRONG_USE),
    ("txn hanging orders", OK),
    ("txn hanging", ONE),
    ("txn hanging nosuch", ONE),
    ("txn hanging zz*", ONE),
    ("txn hanging orders:0", OK),
    ("txn hanging audit:0", ONE),
    ("txn hanging orders:9", ONE),
    ("txn fence orders-sink-1", WRONG_USE),  # There is no terminal to confirm it.
    ("txn fence orders-sink-1 --yes", OK),
    ("txn fence nosuch --yes", ONE),
    ("txn fence audit-1 --yes", ONE),
    ("txn abort orders-sink-1 --yes", ONE),
    ("txn abort --topic nosuch --partition 0 --yes", ONE),
    ("txn abort --topic zz* --partition 0 --yes", ONE),
    ("txn abort --topic orders --partition 0 --yes", ONE),
    ("txn abort", WRONG_USE),
    ("group list", OK),
    ("group describe billing", OK),
    ("group describe nosuch", ONE),
    ("doctor", ONE),
    ("spark check --id orders-1 --topic orders --no-spark", OK),
    ("spark check --id orders-1 --topic nosuch --no-spark", ONE),
    ("spark check --topic orders --no-spark", WRONG_USE),
    ("tail orders", OK),
    ("tail nosuch", ONE),
    ("tail orders:9", ONE),
    ("tail zz*", ONE),
    ("tail orders --from soon", WRONG_USE),
    ("tap --listen 192.0.2.1:9093", ONE),  # An address that no machine has.
    ("topic list", OK),
    ("topic describe orders", OK),
    ("topic describe nosuch", ONE),
    ("topic describe zz*", ONE),
    ("topic create orders", ONE),
    ("topic create orders --if-not-exists", OK),
    ("topic delete orders", WRONG_USE),  # There is no terminal to confirm it.
    ("topic delete nosuch --yes", ONE),
    ("topic delete nosuch --if-exists --yes", OK),
    ("topic delete zz* --yes", ONE),
    ("topic delete zz* --if-exists --yes", OK),
    ("cluster nodes", OK),
    ("cluster stop-node 1", ONE),  # It is the only one.
    ("cluster stop-node two", WRONG_USE),
    ("cluster start-node 1", ONE),
    ("cluster pause-node 7", ONE),
    ("cluster resume-node 1", ONE),
    ("cluster move-leader orders:0 1", OK),
    ("cluster move-leader orders:9 1", ONE),
    ("cluster move-leader orders 1", WRONG_USE),
    ("cluster move-coordinator orders-sink-3 1", OK),
    ("cluster move-coordinator orders-sink-3 2", ONE),
    ("user list", OK),
    ("user add bob", WRONG_USE),  # There is no terminal to ask for the password.
    ("user delete nosuch --yes", ONE),
    ("verify pipeline --input orders --output nosuch -- true", ONE),
    ("verify pipeline --input orders --output orders -- true", WRONG_USE),
]
# Each pause is twice the one before. On a slow machine, fewer attempts fit into the patience of the tools.
MOST_ATTEMPTS = 1 + int(math.log2(FIRST_PATIENCE_S / FIRST_PAUSE_S + 1))
WITHOUT_A_BROKER = [
    ("verify check /no/such/file", ONE),
    ("verify cluster", UNANSWERED),
    ("verify cluster --history nosuch/file", ONE),
    ("verify cluster --faults fire", WRONG_USE),
    ("verify pipeline --input orders --output audit -- true", UNANSWERED),
    ("txn list", UNANSWERED),
    ("txn lso --max-age 1d", UNANSWERED),
    ("txn explain orders-sink-3", UNANSWERED),
    ("txn fence orders-sink-3 --yes", UNANSWERED),
    ("group list", UNANSWERED),
    ("topic list", UNANSWERED),
    ("cluster nodes", UNANSWERED),
    ("topic create orders", UNANSWERED),
    ("tail orders", UNANSWERED),
    ("doctor", UNANSWERED),
    ("spark check --id orders-1 --no-spark", UNANSWERED),
    ("exporter --listen 192.0.2.1:9405", ONE),  # An address that no machine has.
    ("tap --output nosuch/file", ONE),
    ("web --listen 0.0.0.0:8080", WRONG_USE),  # Other machines would reach it, and there is no token.
    ("web --listen nowhere", WRONG_USE),
    ("salvage check --data nosuch", ONE),
    ("salvage export nosuch", ONE),
    ("salvage list --data nosuch", ONE),
    ("user list --data nosuch", ONE),
    ("user add bob --data pyproject.toml --password-file pyproject.toml", ONE),
    ("user list", UNANSWERED),
    ("salvage restore nosuch --topic orders --partition 0", ONE),
    ("salvage show nosuch", ONE),
    ("error 47", OK),
    ("error nosuch", ONE),
    ("error", WRONG_USE),
    ("nosuch", WRONG_USE),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with example_broker() as broker:
        yield broker


@pytest.mark.parametrize(("command", "code"), ON_THE_BROKER)
def test_on_a_cluster_a_command_ends_with(
    command: str, code: int, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", broker.bootstrap_servers)
    assert main(command.split()) == code


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "txn abort --topic audit --partition 7 --yes",
            "UNKNOWN_TOPIC_OR_PARTITION (3): the topic has 1 partition",
        ),
        ("topic describe nosuch", "`fencepost topic list --bootstrap {servers}` lists the topics"),
        ("topic delete nosuch --yes", "`fencepost topic list --bootstrap {servers}` lists the topics"),
        ("tail nosuch", "`fencepost topic list --bootstrap {servers}` lists the topics"),
        ("topic create orders", "`fencepost topic describe orders --bootstrap {servers}` shows it"),
        ("topic create t --config a=b", "`fencepost topic describe TOPIC --all-settings --bootstrap {servers}` shows"),
    ],
)
def test_what_does_not_exist_is_named_and_the_hint_can_be_pasted(
    command: str, said: str, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--bootstrap", broker.bootstrap_servers]) == ONE
    assert said.format(servers=broker.bootstrap_servers) in capsys.readouterr().err


@pytest.mark.parametrize(("command", "code"), WITHOUT_A_BROKER)
def test_without_a_cluster_a_command_ends_with(command: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # A port that no process can listen on.
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", "127.0.0.1:1")
    attempts: list[object] = []
    connect = socket.create_connection

    def count_and_connect(address: tuple[str, int], timeout: float) -> socket.socket:
        attempts.append(address)
        return connect(address, timeout)

    monkeypatch.setattr(socket, "create_connection", count_and_connect)
    assert main(command.split()) == code
    if code == UNANSWERED:
        assert 1 <= len(attempts) <= MOST_ATTEMPTS, "an operator soon learns that nothing listens"


@pytest.mark.parametrize(
    ("command", "api", "error", "code"),
    [
        # An order that is refused has failed.
        ("txn fence orders-sink-1 --yes", "InitProducerId", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", ONE),
        ("txn fence orders-sink-1 --yes", "DescribeTransactions", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", ONE),
        (ABORT, "WriteTxnMarkers", "CLUSTER_AUTHORIZATION_FAILED", ONE),
        # A question that is refused leaves the answer open.
        ("txn describe orders-sink-1", "DescribeTransactions", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", UNANSWERED),
        ("txn hanging", "DescribeProducers", "TOPIC_AUTHORIZATION_FAILED", UNANSWERED),
        # It is fenced, but it is not known whether a transaction of it hangs.
        ("txn fence orders-sink-1 --yes", "DescribeProducers", "TOPIC_AUTHORIZATION_FAILED", UNANSWERED),
        # Readers wait, although the transaction is not known.
        ("doctor", "DescribeProducers", "TOPIC_AUTHORIZATION_FAILED", ONE),
    ],
)
def test_without_a_permission_a_command_ends_with(
    command: str, api: str, error: str, code: int, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", broker.bootstrap_servers)
    with broker.faults.inject_error(api, error, times=None):
        assert main(command.split()) == code


def test_a_command_whose_reader_has_gone_ends_with_141(broker: Broker) -> None:
    with (
        closed_pipe() as pipe,
        start_fencepost("txn", "list", "--bootstrap", broker.bootstrap_servers, stdout=pipe) as process,
    ):
        assert process.wait(TIMEOUT_S) == ReaderGone.exit_code == 141


@pytest.mark.parametrize(
    ("command", "code"), [("txn list --bootstrap 127.0.0.1:1", UNANSWERED), ("txn nosuch", WRONG_USE)]
)
def test_an_error_keeps_its_exit_code_if_stderr_is_a_closed_pipe(command: str, code: int) -> None:
    with closed_pipe() as pipe, start_fencepost(*command.split(), stdout=pipe, stderr=pipe) as process:
        assert process.wait(TIMEOUT_S) == code


def test_without_stderr_an_error_does_not_go_to_stdout() -> None:
    done = run_in_shell("error nosuch", "2>&-")
    assert (done.returncode, done.stdout) == (ONE, "")


@pytest.mark.parametrize(
    ("redirection", "reason"), [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")]
)
@pytest.mark.parametrize("command", ["error 47", "error --list", "error 47 --json", "error --help"])
def test_output_that_cannot_be_written_is_an_error_with_its_reason(command: str, redirection: str, reason: str) -> None:
    done = run_in_shell(command, redirection)
    assert done.returncode == ONE
    assert done.stderr == f"error: cannot write to stdout: {reason}\n\nhint: is it closed, or is its disk full?\n"


def run_in_shell(command: str, redirection: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *python_module("fencepost", *command.split())],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=child_environment(),
    )


def test_a_broker_that_cannot_start_ends_with_1(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file in the place of the folder")
    assert main(["broker", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")]) == ONE


def test_the_table_has_an_example_of_every_code_and_of_every_command_s_code_1() -> None:
    tried = [*ON_THE_BROKER, *WITHOUT_A_BROKER]
    # A closed pipe is tried above, Ctrl-C with the commands that run until then.
    assert {code for _, code in tried} == EXIT_CODES.keys() - {ReaderGone.exit_code, 130}
    with_one = [command for command, code in tried if code == ONE]
    missing = {name for name in WHEN_1 if not any(f"{command} ".startswith(f"{name} ") for command in with_one)}
    assert {name for name in missing if WHEN_1[name].startswith(NEVER)} == {"group list", "topic list"}
    # The broker is tried above; the others have tests of their own.
    untried = {name for name in missing if not WHEN_1[name].startswith(NEVER)}
    assert untried == {"broker", "cluster nodes", "demo", "spark-jar", "web"}
