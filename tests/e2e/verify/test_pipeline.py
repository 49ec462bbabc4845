"""`fencepost verify pipeline` on one right and one wrong program, and its errors. The gallery has more programs."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.child import python_module
from fencepost.client.admin.topics import create_topic
from fencepost.client.client import KafkaClient
from fencepost.client.producing import produce
from fencepost.client.transaction import Transaction
from fencepost.protocol.batch import encode_batch
from fencepost.testing import Broker
from fencepost.verify.pipeline.reader import CommittedReader
from tests.command_line import run_fencepost, start_fencepost
from tests.e2e.failovers import three_nodes
from tests.gallery.running import accused_of, program

TRANSACTIONAL_ID = "tills-1"  # Of the program `right`.
QUICK = ("--seconds", "2", "--kill-every", "1s", "--faults", "kill", "--group", "tills", "--seed", "7")


@pytest.fixture
def verify(start_broker: Callable[..., Broker]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command on a broker with the topics orders and payments."""
    servers = start_broker().bootstrap_servers
    with KafkaClient({"bootstrap.servers": servers}) as client:
        for topic in ("orders", "payments"):
            create_topic(client, topic, 1, 1)

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return run_fencepost("verify", "pipeline", "--bootstrap", servers, "--input", "orders", *arguments)

    return run


def test_a_program_with_outputs_and_offsets_in_one_transaction_is_not_accused(
    start_broker: Callable[..., Broker],
) -> None:
    assert accused_of(start_broker().bootstrap_servers, program("right"), *QUICK) == {}


def test_a_program_without_transactions_doubles_outputs_and_its_history_says_so_again(
    start_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    file = tmp_path / "history.jsonl"
    found = accused_of(start_broker().bootstrap_servers, program("at_least_once"), *QUICK, "--history", file)
    assert found["duplicate"]
    again = run_fencepost("verify", "check", file, "--json")
    assert {kind["kind"]: kind["count"] for kind in json.loads(again.stdout)["kinds"]} == found


def test_the_end_of_a_run_waits_for_the_command_of_the_user(
    start_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    done = tmp_path / "done"
    options = ("--seconds", "1.5", "--kill-every", "500ms", "--faults", "none", "--nemesis", f"sleep 3; touch {done}")
    assert accused_of(start_broker().bootstrap_servers, program("right"), *options) == {}
    assert done.exists()


def test_a_right_program_is_not_accused_while_its_coordinator_moves(tmp_path: Path) -> None:
    """By the line of the guide, which names another node each second."""
    with three_nodes(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        order = f"move-coordinator {TRANSACTIONAL_ID} $(($(date +%s) % 3 + 1)) --bootstrap {servers}"
        nemesis = f"{shlex.join(python_module('fencepost', 'cluster'))} {order}"
        options = ("--group", "tills", "--seconds", "6", "--kill-every", "1s", "--faults", "none", "--seed", "7")
        assert accused_of(servers, program("right"), *options, "--nemesis", nemesis) == {}
        moved_to = re.findall(rf"node (\d) coordinates the transactional id {TRANSACTIONAL_ID}", broker.log)
    assert len(set(moved_to)) >= 2, moved_to


def test_a_missing_topic_a_wrong_command_and_a_program_that_fails_are_named(
    verify: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    missing = verify("--output", "refunds", "--", "true")
    assert (missing.returncode, "topic refunds" in missing.stderr) == (1, True)
    assert "fencepost topic create refunds" in missing.stderr

    unknown = verify("--output", "payments", "--", "no-such-program")
    assert unknown.returncode == 1
    assert "cannot start no-such-program: No such file or directory" in unknown.stderr

    failed = verify("--output", "payments", "--", "sh", "-c", "echo no such broker >&2; exit 3")
    assert failed.returncode == 1
    assert "exit code 3 before it wrote anything; its last lines are:\n  no such broker" in failed.stderr


def test_a_program_that_never_connects_is_named(
    verify: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    silent = verify("--output", "payments", "--first-output", "1s", "--", "sleep", "60")
    assert "no output came in 1 s, and no client has connected to 127.0.0.1:" in silent.stderr
    assert "hint: does the program use the address in {bootstrap}" in silent.stderr


def await_outputs(client: KafkaClient, topic: str, count: int, timeout_s: float = 60.0) -> None:
    """Wait until there is an output of so many inputs. The outputs of the gallery's programs have the inputs' keys."""
    reader = CommittedReader(client, {(topic, 0): 0})
    keys: set[bytes | None] = set()
    deadline = time.monotonic() + timeout_s
    while len(keys) < count:
        assert time.monotonic() < deadline, f"{len(keys)} of {count} outputs after {timeout_s:g} s"
        keys |= {record.key for _, records in reader.poll(max_wait_ms=100) for record in records}


# It leaves out the first order that it reads, and all orders of others.
CHOOSY = """
from confluent_kafka import Consumer, Producer
from tests.gallery.loop import BOOTSTRAP, CONSUMER, batches, pay

producer, left_out = Producer(BOOTSTRAP), None
for messages in batches(Consumer({**CONSUMER, "enable.auto.commit": True})):
    orders = [message for message in messages if message.key() != b"other"]
    left_out = left_out or (orders[0].key() if orders else None)
    pay(producer, [message for message in orders if message.key() != left_out])
"""


@pytest.mark.parametrize("written", ["orders", "payments"])
def test_a_run_ends_although_another_program_writes_to_a_topic_all_the_time(
    start_broker: Callable[..., Broker], written: str
) -> None:
    servers = start_broker().bootstrap_servers
    with KafkaClient({"bootstrap.servers": servers}) as client:
        for topic in ("orders", "payments"):
            create_topic(client, topic, 1, 1)
        ran = start_fencepost(
            *("verify", "pipeline", "--bootstrap", servers, "--input", "orders", "--output", "payments"),
            *("--faults", "none", "--seconds", "1", "--settle", "2s", "--hung-after", "2s"),
            *("--", sys.executable, "-c", CHOOSY, "orders", "payments"),
        )
        deadline = time.monotonic() + 60.0
        while ran.poll() is None and time.monotonic() < deadline:
            produce(client, written, 0, encode_batch([(b"other", b"v")], 1_000))
            time.sleep(0.01)  # Much less than --settle, and the processor is left to the others.
        has_ended = ran.poll() is not None
        ran.send_signal(signal.SIGINT)
        stdout, stderr = ran.communicate(timeout=60)
    assert has_ended, stderr
    assert (ran.returncode, "missing-output" in stdout) == (1, True), stdout + stderr


def test_inputs_that_an_open_transaction_holds_back_are_processed_before_the_program_is_stopped(
    start_broker: Callable[..., Broker],
) -> None:
    """As after a commit whose markers are late: Apache Kafka answers EndTxn before it writes them."""
    servers = start_broker().bootstrap_servers
    with KafkaClient({"bootstrap.servers": servers}) as client:
        for topic in ("orders", "payments", "audit"):
            create_topic(client, topic, 1, 1)
        ran = start_fencepost(
            *("verify", "pipeline", "--bootstrap", servers, "--input", "orders", "--output", "payments,audit"),
            *("--group", "tills", "--faults", "none", "--seconds", "2", "--", *program("right")),
        )
        assert ran.stderr is not None
        while "the first output came" not in ran.stderr.readline():
            assert ran.poll() is None
        holding = Transaction(client, "holding", 60_000, is_verified=True)
        identity = holding.init()
        holding.begin()
        holding.add_partitions([("orders", 0)])
        batch = encode_batch([(b"k", b"v")], 1_000, *holding.identity[1:], 0, transactional=True)
        produce(client, "orders", 0, batch, identity.transactional_id, holding.version)
        while "inputs are written" not in (line := ran.stderr.readline()):
            assert ran.poll() is None
        [readable] = re.findall(r"(\d+) of them committed", line)
        await_outputs(client, "payments", int(readable))
        holding.abort()
        stdout, stderr = ran.communicate(timeout=60)
    assert ran.returncode == 0, stdout + stderr


def test_ctrl_c_ends_the_program_and_judges_what_was_seen(start_broker: Callable[..., Broker], tmp_path: Path) -> None:
    servers = start_broker().bootstrap_servers
    with KafkaClient({"bootstrap.servers": servers}) as client:
        for topic in ("orders", "payments", "audit"):
            create_topic(client, topic, 1, 1)
    pid_file = tmp_path / "pid"
    noted = ["sh", "-c", f'echo $$ > {pid_file}; exec "$@"', "sh", *program("right")]
    ran = start_fencepost(
        *("verify", "pipeline", "--bootstrap", servers, "--input", "orders", "--output", "payments,audit"),
        *("--faults", "none", "--seconds", "600", "--", *noted),
    )
    assert ran.stderr is not None
    while "the first output came" not in ran.stderr.readline():
        assert ran.poll() is None
    ran.send_signal(signal.SIGINT)
    stdout, stderr = ran.communicate(timeout=60)
    assert "interrupted: stopping the program" in stderr
    assert "the run was interrupted" in stdout
    assert ran.returncode == 0, stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
