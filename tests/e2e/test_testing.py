"""`fencepost.testing`: the context manager, the fixtures, and every example of the guide."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from fencepost.child import child_environment
from fencepost.testing import Broker, BrokerFailed, OrderRefused, plugin
from fencepost.testing import process as testing_process
from tests.e2e.clients.confluent import text_of

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "testing.md"


def write(broker: Broker, value: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("orders", value)
    assert producer.flush(20) == 0


def read(broker: Broker, count: int) -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    try:
        values: list[str] = []
        while len(values) < count:
            message = consumer.poll(20)
            assert message is not None
            assert message.error() is None, message.error()
            values.append(text_of(message))
        return values
    finally:
        consumer.close()


def topics(broker: Broker) -> set[str]:
    return set(AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=10).topics)


def test_data_on_disk_outlives_kill_and_restart(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker:
        write(broker, "before the kill")
        address, first = broker.bootstrap_servers, broker.pid
        broker.kill()
        assert not broker.is_running
        broker.restart()
        assert broker.bootstrap_servers == address
        assert broker.pid != first
        write(broker, "after the kill")
        broker.restart()
        assert read(broker, 2) == ["before the kill", "after the kill"]


def test_a_client_finds_the_restarted_broker_again(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("orders", "placed")
        assert producer.flush(20) == 0
        broker.kill()
        broker.restart()
        producer.commit_transaction(60)
        assert read(broker, 1) == ["placed"]


def test_data_in_memory_does_not_so_a_restart_is_refused() -> None:
    with Broker() as broker:
        write(broker, "gone soon")
        address = broker.bootstrap_servers
        with pytest.raises(OrderRefused, match=r"in memory .* records(.|\n)*hint: .*data=tmp_path"):
            broker.restart()
        assert "orders" in topics(broker), "the running broker is left alone"
        broker.kill()
        with pytest.raises(OrderRefused, match=r"call stop\(\) or kill\(\), then start\(\)"):
            broker.restart()
        broker.start()
        assert broker.bootstrap_servers == address
        assert "orders" not in topics(broker)


def test_a_broker_can_be_stopped_and_started_by_hand() -> None:
    broker = Broker()
    with pytest.raises(BrokerFailed, match="not running"):
        broker.stop()
    broker.start()
    assert broker.is_running
    broker.stop()
    assert not broker.is_running
    assert broker.wait_for_exit(0) == 0
    broker.kill()


def test_a_crash_point_is_waited_for(tmp_path: Path) -> None:
    with Broker(data=tmp_path, settings={"fencepost.crash.at": "txn.prepare.after"}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t", "log_level": 0})
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("orders", "placed")
        assert producer.flush(20) == 0
        with pytest.raises(BrokerFailed, match="still runs"):
            broker.wait_for_exit(0)
        with pytest.raises(Exception, match="imed out"):
            producer.commit_transaction(0.5)
        assert broker.wait_for_exit(20) == -9


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as first, pytest.raises(BrokerFailed, match=f"in use by process {first.pid}"):
        Broker(data=tmp_path).start()
    with pytest.raises(BrokerFailed, match=r"did you mean num\.partitions"):
        Broker(settings={"num.partitons": 3}).start()


def test_a_broker_that_died_unnoticed_is_noticed_at_the_end() -> None:
    with pytest.raises(BrokerFailed, match="ended by itself with exit code -9"), Broker() as broker:
        os.kill(broker.pid, signal.SIGKILL)
        broker._process.running().wait()


def test_an_error_in_the_block_is_the_one_that_is_raised() -> None:
    with pytest.raises(ZeroDivisionError), Broker() as broker:
        _ = 1 / 0
    assert not broker.is_running


def test_the_log_is_kept_over_restarts() -> None:
    warning = "log.cleaner.delete.retention.ms=1 is shorter"
    with Broker(settings={"log.cleaner.delete.retention.ms": 1}) as broker:
        assert broker.log.count(warning) == 1
        broker.stop()
        broker.start()
        assert broker.log.count(warning) == 2
    assert broker.log.count(warning) == 2


def test_a_broker_that_ended_by_itself_can_be_started_and_keeps_its_log() -> None:
    warning = "log.cleaner.delete.retention.ms=1 is shorter"
    with Broker(settings={"log.cleaner.delete.retention.ms": 1}) as broker:
        ended, log_file = broker._process.running(), broker._process.stderr
        os.kill(broker.pid, signal.SIGKILL)
        ended.wait()
        broker.start()
        assert broker.log.count(warning) == 2
        assert log_file.closed
        assert ended.stdin is not None
        assert ended.stdin.closed
        assert ended.stdout is not None
        assert ended.stdout.closed


def test_an_answer_that_comes_late_is_not_taken_for_that_of_the_next_order(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as broker:
        fault = broker.faults.drop_on("EndTxn")
        os.kill(broker.pid, signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(testing_process, "ORDER_TIMEOUT_S", 0.1)
            with pytest.raises(BrokerFailed, match="no answer to add_fault"):
                broker.faults.drop_on("AddOffsetsToTxn")
            with pytest.raises(BrokerFailed, match="hits has to wait: no answer to add_fault"):
                _ = fault.hits
        os.kill(broker.pid, signal.SIGCONT)
        assert fault.hits == 0
        third = broker.faults.drop_on("Produce")
        assert third.hits == 0
        # An order that is refused is not mixed up either.
        with pytest.raises(ValueError, match="no transactional id"):
            broker.fence("nobody")
        assert third.hits == 0


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the tests in `folder` as a user's project would: the fixtures come with the installed package."""
    installed = any(entry.value == "fencepost.testing.plugin" for entry in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "fencepost.testing.plugin"]
    command = [sys.executable, "-m", "pytest", "-q", *plugin, *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=110, check=False, env=child_environment()
    )


def test_fixtures_stop_their_brokers_and_workers_do_not_meet(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "test_it.py").write_text(
        """
import socket
import pytest

seen = []


@pytest.mark.parametrize("n", range(3))
def test_one(fencepost_broker, n):
    seen.append(fencepost_broker)
    socket.create_connection((fencepost_broker.host, fencepost_broker.port), timeout=10).close()


def test_two(fencepost_broker_factory, tmp_path):
    brokers = [fencepost_broker_factory(), fencepost_broker_factory(data=tmp_path)]
    seen.extend(brokers)
    assert len({broker.port for broker in brokers}) == 2
    brokers[1].kill()


@pytest.fixture(autouse=True, scope="module")
def all_are_gone():
    yield
    assert seen
    assert not any(broker.is_running for broker in seen)
"""
    )
    done = run_pytest(tmp_path, "-n", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_the_contents_of_a_broker_can_be_asserted(fencepost_session_broker: Broker) -> None:
    broker = fencepost_session_broker
    broker.create_topic("contents", partitions=2, configs={"retention.ms": 3_600_000})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "contents-writer"})
    producer.init_transactions(20)

    def write_one(value: str, partition: int) -> None:
        producer.begin_transaction()
        producer.produce("contents", value, key="k", partition=partition, headers={"h": b"1"})
        assert producer.flush(20) == 0

    for number in range(3):
        write_one(f"aborted {number}", number % 2)
        producer.abort_transaction(20)
        write_one(f"committed {number}", number % 2)
        producer.commit_transaction(20)
    write_one("open", 0)
    records = broker.read_committed("contents")
    assert [(r.partition, r.value) for r in records] == [
        (0, b"committed 0"),
        (0, b"committed 2"),
        (1, b"committed 1"),
    ]
    assert (records[0].topic, records[0].key, records[0].headers) == ("contents", b"k", (("h", b"1"),))
    (txn,) = [txn for txn in broker.transactions() if txn.transactional_id == "contents-writer"]
    assert txn.state == "Ongoing"
    assert [str(where) for where in txn.partitions] == ["contents-0"]
    producer.commit_transaction(20)
    assert broker.read_committed("contents")[2].value == b"open"
    with pytest.raises(OrderRefused, match=r"topic 'contents' cannot be created: .*already exists"):
        broker.create_topic("contents")
    with pytest.raises(OrderRefused, match=r"topic 'nowhere' cannot be read: .*"):
        broker.read_committed("nowhere")


def test_topics_can_be_there_from_the_start() -> None:
    with Broker(topics={"orders": 3}) as broker:
        topics = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=20).topics
        assert len(topics["orders"].partitions) == 3


def test_the_report_of_a_failed_test_shows_its_transactions(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text(
        """
from confluent_kafka import Producer


def write(broker, transactional_id):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("orders", b"placed")
    producer.commit_transaction(20)


def test_passes(fencepost_session_broker):
    write(fencepost_session_broker, "of-another-test")


def test_fails_with_a_broker(fencepost_broker):
    write(fencepost_broker, "my-id")
    assert False


def test_fails_with_a_factory(fencepost_broker_factory):
    write(fencepost_broker_factory(), "made-id")
    assert False


def test_fails_with_the_session(fencepost_session_broker):
    assert not fencepost_session_broker.transactions()
"""
    )
    done = run_pytest(tmp_path, "-p", "no:cacheprovider")
    assert "3 failed, 1 passed" in done.stdout
    assert done.stdout.count("- Transactions at 127.0.0.1:") >= 2
    for transactional_id in ("my-id", "made-id"):
        for what in ("init", "begin", "add", "decide", "marker", "complete"):
            assert re.search(rf"^\S+Z TXN +{what} +{transactional_id} ", done.stdout, re.MULTILINE), what


def test_the_traceback_of_our_error_ends_at_the_line_of_the_test(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text(
        """
import pytest


@pytest.fixture
def refused(fencepost_session_broker):
    fencepost_session_broker.create_topic("a/b")


def test_api(fencepost_session_broker):
    fencepost_session_broker.faults.drop_on("EndTransaction")


def test_hits(fencepost_session_broker):
    fencepost_session_broker.faults.drop_on("EndTxn").wait_for_hits(timeout_s=0)


def test_fixture(refused):
    pass


def test_bug(fencepost_session_broker):
    fencepost_session_broker.faults.drop_on(object())
"""
    )
    report = run_pytest(tmp_path, "-p", "no:cacheprovider", "-k", "not bug").stdout
    assert '>       fencepost_session_broker.faults.drop_on("EndTransaction")' in report
    assert re.search(r"^E .*OrderRefused: 'EndTransaction' is no API", report, re.MULTILINE)
    assert re.search(r"^E +hint: did you mean EndTxn\?", report, re.MULTILINE)
    assert re.search(r"^E +TimeoutError: drop at the reply of EndTxn: 0 hits", report, re.MULTILINE)
    assert '>       fencepost_session_broker.create_topic("a/b")' in report
    assert "fencepost/testing/" not in report
    # The frames are there if one asks for them, or if the error may be a bug of ours.
    for arguments in (("-k", "api", "--full-trace"), ("-k", "bug")):
        assert "fencepost/testing/faults.py" in run_pytest(tmp_path, "-p", "no:cacheprovider", *arguments).stdout


def test_an_argument_that_claims_to_be_a_broker_is_not_asked_for_its_log() -> None:
    class Boastful:
        def __init__(self, claimed: type) -> None:
            self.claimed = claimed

        @property  # type: ignore[misc]
        def __class__(self) -> type:  # As a mock with a specification has it.
            return self.claimed

    item = SimpleNamespace(funcargs={"one": Boastful(Broker), "two": Boastful(plugin.BrokerFactory)})
    assert plugin._brokers_of(cast("pytest.Item", item)) == []


def test_of_very_many_lines_the_report_shows_the_last() -> None:
    lines = [f"2026-01-01T00:00:{second:02d}.000Z TXN     begin    t" for second in range(10)] * 100
    shown = plugin.lines_since(lines, "2026-01-01T00:00:05")
    assert len(shown) == plugin.MOST_LINES + 1
    assert shown[0] == "(300 earlier lines are left out)"
    assert plugin.lines_since(lines, "2026-01-01T00:00:59") == []


def guide_blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_guide_run(tmp_path: Path) -> None:
    tests = [block for block in guide_blocks() if "def test_" in block]
    assert len(tests) >= 4
    for n, block in enumerate(tests):
        (tmp_path / f"test_guide_{n}.py").write_text(block)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_scripts_of_the_guide_run(tmp_path: Path) -> None:
    scripts = [block for block in guide_blocks() if "def test_" not in block]
    assert scripts
    for block in scripts:
        done = subprocess.run(
            [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, env=child_environment()
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert re.fullmatch(r"127\.0\.0\.1:\d+\n", done.stdout)
