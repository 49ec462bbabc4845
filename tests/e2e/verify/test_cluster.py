"""`fencepost verify cluster` on Fencepost: it accuses no correct broker, and it catches a broken one."""

from __future__ import annotations

import json
import re
import signal
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from fencepost.client.admin.configs import describe_topic_configs
from fencepost.client.client import KafkaClient
from fencepost.verify.cluster_run import KEEP_ALL
from tests.command_line import run_fencepost, start_fencepost
from tests.e2e.conftest import StartBroker
from tests.e2e.verify.mutants import MutantBroker
from tests.e2e.verify.runs import TIMEOUT_S, verify_cluster

pytestmark = pytest.mark.timeout(TIMEOUT_S)
SEEDS = 10
SMALL = ("--clients", "librdkafka=1,fencepost-v2=1")


def topics_of(servers: str) -> list[str]:
    with KafkaClient({"bootstrap.servers": servers}) as client:
        return [name for name in client.refresh(None) if name.startswith("fencepost-verify-")]


def answers_before_rest(history: Path) -> list[dict[str, Any]]:
    events = list(map(json.loads, history.open()))
    kinds = [event["event"] for event in events]
    return [event for event in events[: kinds.index("rest")] if event["event"] == "committed"]


def test_a_correct_broker_is_not_accused_among_faults(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    history = tmp_path / "history.jsonl"
    verdict = verify_cluster(broker.bootstrap_servers, history, *SMALL, "--seconds", "5", "--seed", "10")
    assert (verdict.exit_code, verdict.kinds) == (0, set()), verdict.stderr
    assert verdict.report["committed"] > 0
    groups = {event["group"] for event in answers_before_rest(history)}
    assert len(groups) == 2, "the offsets of all groups are asked for while their transactions are open"
    assert topics_of(broker.bootstrap_servers) == [], "they are deleted at the end"
    again = run_fencepost("verify", "check", history)
    assert again.returncode == 0, again.stderr


def test_a_last_stable_offset_that_is_too_far_is_caught(tmp_path: Path) -> None:
    with MutantBroker("lso-too-far") as broker:
        verdict = verify_cluster(
            broker.bootstrap_servers,
            tmp_path / "history.jsonl",
            *("--clients", "fencepost-v2=1", "--seconds", "3", "--seed", "1", "--faults", "none"),
        )
    assert verdict.exit_code == 1
    assert verdict.kinds & {"precommitted-read", "G1a"}, verdict.stderr


def test_offsets_that_count_before_their_transaction_commits_are_caught_while_it_is_open(tmp_path: Path) -> None:
    with MutantBroker("offsets-without-outputs") as broker:
        verdict = verify_cluster(
            broker.bootstrap_servers,
            tmp_path / "history.jsonl",
            *("--clients", "fencepost-v2=1", "--seconds", "4", "--seed", "1", "--faults", "none"),
        )
    [found] = [kind for kind in verdict.report["kinds"] if kind["kind"] == "offsets-ahead"]
    assert any(", which only transaction" in anomaly["what"] for anomaly in found["shown"]), verdict.stderr


def test_an_interrupted_run_is_judged_with_the_commands_of_the_user(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    history = tmp_path / "history.jsonl"
    running = start_fencepost(
        *("verify", "cluster", "--bootstrap", broker.bootstrap_servers, "--json", "--history", history),
        *("--clients", "fencepost-v2=1", "--seconds", "600", "--faults", "none"),
        *("--nemesis", "echo no such pod >&2; exit 3", "--nemesis-every", "500ms"),
    )
    assert running.stderr is not None
    # The clients work when the first command has run.
    while "no such pod" not in running.stderr.readline():
        assert running.poll() is None, running.communicate()
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate(timeout=TIMEOUT_S)
    assert running.returncode == 0, stderr
    assert "interrupted" in stderr
    assert json.loads(stdout)["committed"] > 0
    assert topics_of(broker.bootstrap_servers) == []
    faults = {event["what"] for event in map(json.loads, history.open()) if event["event"] == "fault"}
    assert faults == {"echo no such pod >&2; exit 3 (exit code 3: no such pod)"}


def test_the_end_of_a_run_waits_for_the_commands_of_the_user(start_broker: StartBroker, tmp_path: Path) -> None:
    """A command that stops a broker and starts it again must not be killed between the two."""
    done = tmp_path / "done"
    command = f"sleep 3; touch {done}"
    verdict = verify_cluster(
        start_broker().bootstrap_servers,
        tmp_path / "history.jsonl",
        *("--clients", "fencepost-v2=1", "--seconds", "1.5", "--faults", "none"),
        *("--nemesis", command, "--nemesis-every", "1s"),
    )
    assert (verdict.exit_code, done.exists()) == (0, True), verdict.stderr
    [seconds] = re.findall(rf"fault: {re.escape(command)} \(exit code 0\), for ([0-9.]+) s", verdict.stderr)
    assert float(seconds) >= 3.0
    assert "waiting for the command of --nemesis, for up to 120 s; Ctrl-C ends it" in verdict.stderr


def test_a_cluster_that_compacts_topics_by_default_is_not_accused(start_broker: StartBroker, tmp_path: Path) -> None:
    defaults = {"log.cleanup.policy": "compact", "log.segment.bytes": "16384", "log.cleaner.backoff.ms": "100"}
    broker = start_broker(**defaults, **{"log.cleaner.min.cleanable.ratio": "0.01", "log.retention.ms": "1000"})
    given = ("--clients", "fencepost-v2=2", "--seconds", "4", "--seed", "1", "--faults", "none", "--keep")
    verdict = verify_cluster(broker.bootstrap_servers, tmp_path / "history.jsonl", *given)
    assert (verdict.exit_code, verdict.kinds) == (0, set()), verdict.stderr
    topic = topics_of(broker.bootstrap_servers)[0]
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        found = {each.name: each.value for each in describe_topic_configs(client, topic, KEEP_ALL)}
    assert found == KEEP_ALL


def test_a_cluster_that_refuses_the_settings_of_the_topics_is_named(start_broker: StartBroker) -> None:
    broker = start_broker()
    broker.faults.inject_error("CreateTopics", "POLICY_VIOLATION")
    done = run_fencepost("verify", "cluster", "--bootstrap", broker.bootstrap_servers, "--clients", "fencepost-v2=1")
    assert done.returncode == 1, done.stderr
    assert "refuses topics that keep every record (cleanup.policy=delete, retention.ms=-1, retention.b" in done.stderr
    assert "POLICY_VIOLATION" in done.stderr


def test_a_cluster_that_is_not_there_is_reported() -> None:
    done = run_fencepost("verify", "cluster", "--bootstrap", "127.0.0.1:1")
    assert done.returncode == 3, done.stderr
    assert "127.0.0.1:1" in done.stderr


@pytest.mark.engines
def test_an_end_txn_that_is_late_is_named_with_version_1(start_broker: StartBroker, tmp_path: Path) -> None:
    """The network delays EndTxn for longer than its client waits, and that is all: KIP-890."""
    broker = start_broker()
    # One at a time: the client asks again after three seconds, and this request passes.
    late = [("--fault", f"delay EndTxn 4s request skip={skip}") for skip in range(5, 105, 10)]
    for seed in range(SEEDS):
        verdict = verify_cluster(
            broker.bootstrap_servers,
            tmp_path / f"{seed}.jsonl",
            *("--clients", "librdkafka=2", "--seconds", "12", "--seed", str(seed), "--faults", "none", *chain(*late)),
        )
        if "late-EndTxn" in verdict.kinds:
            assert verdict.exit_code == 1
            return
    pytest.fail(f"no late EndTxn with {SEEDS} seeds: {verdict.stderr}")
