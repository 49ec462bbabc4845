"""The demos, as commands: they hold, they say so with the exit code, and they notice when something is wrong."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from fencepost.cli.demo import stopped_once
from fencepost.demo.brew import play_brew
from fencepost.demo.isolation import BEFORE, BEHIND, SETTINGS, play_isolation
from fencepost.demo.report import DemoFailed
from fencepost.demo.topics import TOPICS, Topics
from fencepost.protocol.messages import EndTxnRequest, EndTxnResponse, ListOffsetsRequest
from fencepost.testing import Broker
from tests.command_line import run_fencepost, start_fencepost
from tests.engines.apache_kafka import ApacheKafka
from tests.wire.proxy import Proxy


def play(*arguments: str) -> dict[str, Any]:
    """Run a demo with --json and return its document."""
    done = run_fencepost("demo", *arguments, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["holds"] is True
    return document


def checks(document: dict[str, Any]) -> list[tuple[Any, Any]]:
    return [(c["expected"], c["found"]) for section in document["sections"] for c in section["checks"]]


def test_brew_counts_what_each_reader_sees() -> None:
    document = play("brew", "--attempts", "20", "--commit-prob", "0.7", "--seed", "7")
    commits = document["commits"]
    assert 0 < commits < 20
    assert commits == sum(order["end"] == "commit" for order in document["orders"])
    assert checks(document) == [(commits * 3, commits * 3), ([], []), (60, 60), (120, 120)]
    assert [row["markers"] for row in document["sections"][0]["table"]] == [20, 20, 20]


def test_brew_notices_a_record_that_should_not_be_there() -> None:
    with Broker() as broker:
        intruder = Producer({"bootstrap.servers": broker.bootstrap_servers})

        def intrude(line: str) -> None:
            if line.startswith("[2/3]"):
                intruder.produce(TOPICS[0], "intruder", "from elsewhere")
                assert intruder.flush(20) == 0

        report = play_brew(broker.bootstrap_servers, 3, 1.0, 1, intrude)
    assert not report.holds
    by_records, by_order, by_all, by_offsets = report.checks
    assert (by_records.expected, by_records.found) == (9, 10)
    assert by_order.found == ["not expected: brew.orders.v1-0 offset 4: from elsewhere intruder"]
    assert (by_all.expected, by_all.found) == (9, 10)
    assert (by_offsets.expected, by_offsets.found) == (18, 19)
    assert "brew.orders.v1 moved by 7, expected 6" in by_offsets.evidence


def test_a_crash_without_transactions_doubles_the_payment_and_with_them_does_not() -> None:
    document = play("brew", "--no-transactions", "--crash")
    assert checks(document) == [
        ([1, 1, 0], [1, 1, 0]),
        ([2, 2, 1], [2, 2, 1]),
        ([0, 0, 0], [0, 0, 0]),
        ([1, 1, 1], [1, 1, 1]),
        ([2, 2, 1], [2, 2, 1]),
    ]


def test_recovery_finishes_what_was_decided() -> None:
    document = play("recovery")
    committed, aborted, undecided = document["sections"]
    for section, states in (
        (committed, ["Ongoing", "PrepareCommit", "CompleteCommit", "CompleteCommit"]),
        (aborted, ["Ongoing", "PrepareAbort", "CompleteAbort", "CompleteAbort"]),
        (undecided, ["Ongoing", "Ongoing", "Ongoing", "CompleteCommit"]),
    ):
        assert [row["state on disk"] for row in section["table"]] == states
    assert [section["table"][-1]["read_committed sees"] for section in document["sections"]] == [3, 0, 3]


def test_recovery_needs_a_broker_that_it_may_kill() -> None:
    done = run_fencepost("demo", "recovery", "--bootstrap", "127.0.0.1:9092")
    assert done.returncode == 2
    assert "this demo kills its broker" in done.stderr


def test_a_zombie_is_fenced_and_its_successor_is_not_disturbed() -> None:
    document = play("zombie")
    assert document["zombie_says"].startswith("FENCED _FENCED")
    assert [row["read_committed"] for row in document["sections"][0]["table"]] == [2, 3]
    assert [row["read_uncommitted"] for row in document["sections"][0]["table"]] == [3, 3]


def test_the_processes_of_the_zombie_can_be_looked_up_on_a_cluster_that_stays() -> None:
    with Broker() as broker:
        told = run_fencepost("demo", "zombie", "--bootstrap", broker.bootstrap_servers).stderr.splitlines()[-1]
        [line] = re.findall(r"`fencepost (.*)` shows what the coordinator recorded of both processes", told)
        history = run_fencepost(*shlex.split(line))
        assert history.returncode == 0
        assert "because a new producer registered the id" in history.stdout
    assert "shows what the coordinator recorded" not in run_fencepost("demo", "zombie").stderr


def test_a_zombie_in_one_terminal_is_fenced_by_its_successor_in_the_other() -> None:
    with (
        Broker() as broker,
        start_fencepost("demo", "zombie", "--role", "1", "--json", "--bootstrap", broker.bootstrap_servers) as first,
    ):
        assert first.stdout is not None
        assert first.stderr is not None
        while "role 1: committed" not in (line := first.stderr.readline()):
            assert line, "the first process ended before it committed anything"
        second = play("zombie", "--role", "2", "--bootstrap", broker.bootstrap_servers)
        assert second["committed"] == 5
        assert first.wait(60) == 0
        assert "role 1: FENCED: another process has registered brew-zombie" in first.stderr.read()
        document = json.loads(first.stdout.read())
        assert checks(document) == [("FENCED", "FENCED")]


def test_a_role_needs_a_cluster_to_share() -> None:
    done = run_fencepost("demo", "zombie", "--role", "1")
    assert done.returncode == 2
    assert "--role 1 needs a cluster that the other role can reach too" in done.stderr


def test_an_open_transaction_holds_the_reader_until_its_timeout() -> None:
    document = play("isolation", "--timeout", "8s")
    open_still, over = document["sections"][0]["table"]
    assert (open_still["read_uncommitted"], open_still["read_committed"]) == ("before, inside, behind", "before")
    assert open_still["LSO"] == open_still["high watermark"] - 3
    assert (over["LSO"], over["read_committed"]) == (over["high watermark"], "before, behind")
    assert document["waited_s"] < 100


def test_brew_and_isolation_wait_for_markers_that_come_after_the_commit_was_answered() -> None:
    """Apache Kafka answers EndTxn first and writes the markers then; here the first look comes in between, always."""
    with Broker(settings=SETTINGS) as broker, Proxy(broker.bootstrap_servers) as proxy:
        proxy.answer_before(EndTxnRequest, EndTxnResponse(), later=ListOffsetsRequest)
        assert play_brew(proxy.bootstrap_servers, 1, 1.0, 1, lambda _: None).holds
        for _ in (BEFORE, BEHIND):
            proxy.answer_before(EndTxnRequest, EndTxnResponse(), later=ListOffsetsRequest)
        # The transaction times out as soon as the demo has looked at it.
        timeout_ms = 60_000
        report = play_isolation(
            proxy.bootstrap_servers,
            timeout_ms,
            lambda line: broker.advance_clock(timeout_ms) if line.endswith("and waits") else None,
        )
        assert report.holds, [(check.claim, check.expected, check.found) for check in report.checks]
        assert proxy.unsprung == 0


def test_isolation_says_which_marker_it_waited_for_in_vain() -> None:
    with Broker() as broker:
        topics = Topics(broker.bootstrap_servers, ["orders"])
        topics.create()
        with pytest.raises(DemoFailed, match=r"its marker is not on orders-0 after 0 s: the end offset is 0, 3 was"):
            topics.await_end(("orders", 0), 3, timeout_s=0)


def test_the_demo_reports_a_timeout_that_ends_before_its_next_step() -> None:
    with Broker() as broker, pytest.raises(DemoFailed, match="and its timeout is 1000 ms") as caught:
        # As on a machine that takes longer than that from one step to the next.
        play_isolation(broker.bootstrap_servers, 1000, lambda _: time.sleep(1.1))
    assert caught.value.hint.startswith("this machine needs more time: --timeout ")
    done = run_fencepost("demo", "isolation", "--timeout", "1ms")
    assert done.returncode == 2
    assert done.stderr == "error: --timeout 1ms is too short\n\nhint: the client takes no less than 1s\n"


def test_a_timeout_that_the_broker_refuses_is_said_to_be_refused() -> None:
    done = run_fencepost("demo", "isolation", "--timeout", "1d")
    assert done.returncode == 1
    hint = "the broker refuses timeouts longer than its transaction.max.timeout.ms"
    assert f"\n\nhint: {hint}" in done.stderr


def test_read_shows_what_each_level_sees_of_real_topics() -> None:
    with Broker() as broker:
        servers = ("--bootstrap", broker.bootstrap_servers)
        commits = play("brew", "--attempts", "6", "--commit-prob", "0.5", "--seed", "3", *servers)["commits"]
        assert 0 < commits < 6
        idle = ("--idle", "2s", *servers)
        committed = play("read", *idle)
        assert len(committed["records"]) == 3 * commits
        everything = play("read", "--isolation", "read_uncommitted", *idle)
        assert len(everything["records"]) == 18
        some = run_fencepost("demo", "read", "--count", "1", *idle, TOPICS[0])
        assert some.returncode == 0
        first = next(record for record in committed["records"] if record["topic"] == TOPICS[0])
        shown = f"{TOPICS[0]}-0 offset {first['offset']}: {first['key']} {first['value']}"
        assert some.stdout.splitlines()[0] == shown
        assert "1 records, read_committed." in some.stdout


def test_read_says_who_holds_it_and_shows_what_is_not_text() -> None:
    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("bytes", b"\xff\0", b"\xfe")
        assert producer.flush(20) == 0
        arguments = ("--idle", "500ms", "--bootstrap", broker.bootstrap_servers, "bytes")
        held = play("read", *arguments)
        assert held["records"] == []
        assert held["sections"][0]["story"][1] == (
            "An open transaction holds back the last stable offset: bytes-0 from offset 0 to 1."
        )
        producer.commit_transaction(20)
        [record] = play("read", *arguments, "--count", "1")["records"]
        assert (record["key"], record["value"]) == ("\ufffd", "\ufffd\0")


def test_read_needs_a_cluster_and_topics_that_are_there() -> None:
    done = run_fencepost("demo", "read", "orders")
    assert done.returncode == 2
    assert "no cluster to read from" in done.stderr
    with Broker() as broker:
        done = run_fencepost("demo", "read", "--bootstrap", broker.bootstrap_servers, "orders")
    assert done.returncode == 1
    assert done.stderr == "error: there is no topic orders\n\nhint: the topics of this cluster: none\n"


def test_a_demo_without_a_broker_to_talk_to_says_so() -> None:
    done = run_fencepost("demo", "brew", "--bootstrap", "127.0.0.1:1")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: no broker answers at 127.0.0.1:1")
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


def test_demos_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    play("brew", "--attempts", "2")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("demo", "moment"),
    [
        (["brew", "--attempts", "9999"], "[   3/"),
        (["brew", "--crash"], "kill -9"),
        (["recovery"], "calls commit"),
        (["zombie"], "took over"),
    ],
    ids=["brew", "crash", "recovery", "zombie"],
)
def test_ctrl_c_ends_a_demo_at_once_and_cleans_up(
    demo: list[str], moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with start_fencepost("demo", *demo) as process:
        read_until(process, moment)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr is not None
        assert process.stderr.read().split()[-1] == "interrupted"
    assert list(tmp_path.iterdir()) == []


def read_until(process: subprocess.Popen[str], moment: str) -> None:
    """A demo tells what it does, line by line."""
    assert process.stderr is not None
    while moment not in (line := process.stderr.readline()):
        assert line, "the demo ended before it came to this"


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    went_on = False
    try:
        with pytest.raises(KeyboardInterrupt), stopped_once():
            signal.raise_signal(signal.SIGHUP)
            went_on = True
            signal.raise_signal(signal.SIGTERM)
        assert went_on
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.java
@pytest.mark.engines
def test_brew_holds_on_apache_kafka_too(apache: ApacheKafka) -> None:
    document = play("brew", "--attempts", "20", "--bootstrap", apache.bootstrap_servers, "--seed", "7")
    assert checks(document)[2:] == [(60, 60), (120, 120)]
    play("brew", "--no-transactions", "--crash", "--bootstrap", apache.bootstrap_servers)


@pytest.mark.java
@pytest.mark.engines
def test_zombie_isolation_and_read_hold_on_apache_kafka_too(apache: ApacheKafka) -> None:
    servers = ("--bootstrap", apache.bootstrap_servers)
    play("zombie", *servers)
    play("isolation", "--timeout", "10s", *servers)
    # The first of the topic was committed, the second timed out, and the third waited for it.
    seen = play("read", "--idle", "3s", *servers, "brew.isolation.v1")["records"]
    assert [record["key"] for record in seen] == ["before", "behind"]
