"""`fencepost broker` from outside: its ready line, signals, and the answer to every mistake."""

from __future__ import annotations

import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from fencepost import __version__
from fencepost.child import child_environment, python_module
from fencepost.testing import Broker
from tests.command_line import closed_pipe, run_fencepost, start_fencepost

READY_LIMIT_S = 3.0
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR|TXN) +(\S.*)")


@contextmanager
def running(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`fencepost broker` and the address in its ready line."""
    with start_fencepost("broker", *arguments) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            match = re.fullmatch(r"ready (\S+)\n", line)
            assert match is not None, f"{line!r} {process.stderr.read() if process.stderr else ''}"
            yield process, match[1]
        finally:
            process.kill()


def refusal(*arguments: str | Path, exit_code: int = 1) -> str:
    """The error of a broker that does not start; it has a hint, and no traceback."""
    done = run_fencepost("broker", *arguments, timeout_s=20)
    assert (done.returncode, done.stdout) == (exit_code, "")
    *log, error, empty, hint = done.stderr.splitlines()
    assert all(LOG_LINE.match(line) for line in log)
    assert error.startswith("error: ")
    assert empty == ""
    assert hint.startswith("hint: ")
    return error


def queued_s(pid: int | str) -> float:
    """How long a process was ready to run and had to wait for a processor, because other processes ran."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0  # Only Linux counts it.


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_the_broker_is_ready_soon(place: str, tmp_path: Path) -> None:
    arguments = ["--memory"] if place == "memory" else ["--data", tmp_path / "data"]
    began, queued_before_s = time.monotonic(), queued_s("self")
    with running("--listen", "127.0.0.1:0", *arguments) as (process, address):
        took_s = time.monotonic() - began - queued_s(process.pid) - (queued_s("self") - queued_before_s)
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=5):
            pass
    assert took_s < READY_LIMIT_S


def logged(process: subprocess.Popen[str]) -> list[tuple[str, str]]:
    """Level and text of every line on stderr of a process that has ended."""
    assert process.stderr is not None
    found = [LOG_LINE.fullmatch(line) for line in process.stderr.read().splitlines()]
    assert None not in found
    return [(match[1], match[2]) for match in found if match is not None]


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=["SIGTERM", "Ctrl-C", "SIGHUP"])
def test_a_signal_stops_it_cleanly(sent: signal.Signals, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running("--listen", "127.0.0.1:0", "--data", data, "--set", "num.partitions=3") as (process, address):
        process.send_signal(sent)
        assert process.wait(20) == 0
        lines = logged(process)
    assert [level for level, _ in lines] == ["INFO"] * 5
    starts, settings, ready, stopping, stopped = (text for _, text in lines)
    assert starts == f"fencepost {__version__} starts as process {process.pid}, data in {data}"
    assert settings == "settings: num.partitions=3"
    assert re.fullmatch(rf"listens on {address}; ready after \d+ ms with 0 topics and 0 open transactions", ready)
    assert stopping == f"{sent.name}: stopping"
    assert re.fullmatch(
        r"stopped cleanly after \d+ ms: 0 connections closed, 0 partitions saved; 0 open transactions", stopped
    )
    assert (data / ".kafka_cleanshutdown").exists()


def test_a_broker_outlives_the_reader_of_its_ready_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    arguments = ("--listen", "127.0.0.1:0", "--data", data)
    with closed_pipe() as pipe, start_fencepost("broker", *arguments, stdout=pipe) as process:
        try:
            assert process.stderr is not None
            log = iter(process.stderr.readline, "")
            address = next(found[1] for line in log if (found := re.search(r"listens on (\S+);", line)))
            assert AdminClient({"bootstrap.servers": address}).list_topics(timeout=20).brokers
            process.terminate()
            assert process.wait(20) == 0
        finally:
            process.kill()
    assert (data / ".kafka_cleanshutdown").exists()


def test_a_broker_under_nohup_outlives_its_terminal() -> None:
    command = ["nohup", *python_module("fencepost", "broker", "--listen", "127.0.0.1:0", "--memory")]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=child_environment()
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[1]
        process.send_signal(signal.SIGHUP)
        assert AdminClient({"bootstrap.servers": address}).list_topics(timeout=20).brokers
        process.terminate()
        assert process.wait(20) == 0


def test_the_log_level_leaves_lines_out() -> None:
    arguments = ["--listen", "127.0.0.1:0", "--memory", "--log-level", "warning"]
    with running(*arguments, "--set", "log.cleaner.delete.retention.ms=1") as (process, _):
        process.terminate()
        assert process.wait(20) == 0
        ((level, text),) = logged(process)
    assert level == "WARNING"
    assert text.startswith("log.cleaner.delete.retention.ms=1 is shorter than transaction.max.timeout.ms=900000")


def test_the_broker_command_imports_no_other_command_and_nothing_of_the_demos() -> None:
    code = """
import sys
from fencepost.cli import COMMANDS, main
main(["broker", "--memory", "--listen", "127.0.0.1:99999"])
import fencepost.server.app, fencepost.server.startup
others = {place.partition(":")[0] for place in COMMANDS.data.values()} - {"fencepost.cli.broker"}
unwanted = {*others, "rich", "confluent_kafka", "fencepost.demo", "fencepost.diagnose", "fencepost.testing"}
print(sorted(unwanted & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=child_environment())
    assert done.stdout == "[]\n"


def partitions_of(address: str) -> dict[str, int]:
    topics = AdminClient({"bootstrap.servers": address}).list_topics(timeout=20).topics
    return {name: len(topic.partitions) for name, topic in topics.items()}


def test_topics_are_there_as_soon_as_the_broker_is_ready(tmp_path: Path) -> None:
    arguments = ["--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), "--set", "num.partitions=2"]
    with running(*arguments, "--topic", "orders:3", "--topic", "payments") as (process, address):
        assert partitions_of(address) == {"orders": 3, "payments": 2}
        process.terminate()
        assert process.wait(20) == 0
        texts = [text for _, text in logged(process)]
        assert "created the topic orders with 3 partitions" in texts
    # A topic that is there already is left as it is.
    with running(*arguments, "--topic", "orders:3", "--topic", "payments") as (process, address):
        assert partitions_of(address) == {"orders": 3, "payments": 2}
        process.terminate()
        assert process.wait(20) == 0
        assert not any("created" in text for _, text in logged(process))
    error = refusal(*arguments, "--topic", "orders:4")
    assert error == "error: --topic orders:4: the topic exists with 3 partitions"
    with running(*arguments) as (_, address):
        assert partitions_of(address) == {"orders": 3, "payments": 2}, "a refused start changes nothing"


def test_a_topic_that_kafka_does_not_allow_is_refused() -> None:
    error = refusal("--listen", "127.0.0.1:0", "--memory", "--topic", "a/b:1")
    assert "--topic a/b:1: the topic cannot be created: topic name 'a/b' is not allowed" in error


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"cannot listen on {address}" in refusal("--listen", address, "--memory")


def test_a_folder_in_use_is_refused_with_the_pid_of_its_broker(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker:
        error = refusal("--listen", "127.0.0.1:0", "--data", tmp_path)
        assert str(tmp_path) in error
        assert f"process {broker.pid}" in error
        # The first broker is not disturbed.
        assert AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=10).brokers


@pytest.mark.parametrize("setting", ["transaction.state.log.num.partitions", "offsets.topic.num.partitions"])
def test_a_folder_with_another_partition_count_is_refused(setting: str, tmp_path: Path) -> None:
    with Broker(data=tmp_path, settings={setting: 7}) as broker:
        write_in_a_transaction_with_offsets(broker.bootstrap_servers)
    error = refusal("--listen", "127.0.0.1:0", "--data", tmp_path)
    assert f"{setting} is 50" in error
    with Broker(data=tmp_path, settings={setting: 7}):
        pass


def write_in_a_transaction_with_offsets(bootstrap_servers: str) -> None:
    """Both internal topics are created when they are first needed."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": "t"})
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "g"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("orders", "placed")
    group = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition("orders", 0, 0)], group, 20)
    producer.commit_transaction(20)
    consumer.close()


def test_a_folder_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file" / "data") in refusal("--listen", "127.0.0.1:0", "--data", tmp_path / "file" / "data")
    assert str(tmp_path / "file") in refusal("--listen", "127.0.0.1:0", "--data", tmp_path / "file")


def test_a_folder_whose_metadata_is_damaged_is_refused(tmp_path: Path) -> None:
    with Broker(data=tmp_path):
        pass
    (tmp_path / "fencepost.metadata").write_text("damaged")
    assert f"the metadata in {tmp_path} cannot be read" in refusal("--listen", "127.0.0.1:0", "--data", tmp_path)


def test_a_full_disk_at_the_start_is_reported(tmp_path: Path) -> None:
    command = [
        "sh",
        "-c",
        'ulimit -f 0; exec "$@"',
        "sh",
        *python_module("fencepost", "broker", "--listen", "127.0.0.1:0", "--data", str(tmp_path)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, env=child_environment())
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: the data folder {tmp_path} cannot be written: ")
    assert done.stderr.splitlines()[-1].startswith("hint: make room")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no place for the data"),
        (["--data", ""], "--data is empty"),
        (["--memory", "--data", "folder"], "both"),
        (["--memory", "--brokers", "0"], "--brokers 0 is not possible"),
        (["--memory", "--listen", "9092"], "9092 is not an address"),
        (["--memory", "--topic", "orders:0"], "--topic orders:0 is not a topic"),
        (["--memory", "--topic", "orders:many"], "--topic orders:many is not a topic"),
        (["--memory", "--topic", "orders:1", "--topic", "orders:2"], "--topic orders with 1 and with 2 partitions"),
    ],
    ids=["nowhere", "empty", "both", "no brokers", "no host", "no partitions", "no number", "two numbers"],
)
def test_a_wrong_call_is_refused(arguments: list[str], said: str) -> None:
    assert said in refusal(*arguments, exit_code=2)


def test_the_broker_ends_with_the_program_that_started_it() -> None:
    code = """
import signal
from fencepost.testing import Broker
broker = Broker()
broker.start()
print(broker.port, flush=True)
signal.pause()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=child_environment()
    ) as parent:
        assert parent.stdout is not None
        with socket.create_connection(("127.0.0.1", int(parent.stdout.readline())), timeout=20) as connection:
            parent.kill()
            assert connection.recv(1) == b""


def test_a_closed_pipe_causes_no_traceback() -> None:
    with closed_pipe() as pipe, start_fencepost("demo", "brew", "--help", stdout=pipe) as process:
        assert process.stderr is not None
        select.select([process.stderr], [], [], 20)
        assert process.stderr.read() == ""
