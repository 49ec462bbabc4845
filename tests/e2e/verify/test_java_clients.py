"""Kafka's own Java client in the workload of `fencepost verify cluster`, and what is said where it cannot run."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from tests.command_line import run_fencepost, start_fencepost
from tests.e2e.conftest import StartBroker
from tests.e2e.verify.mutants import MutantBroker
from tests.e2e.verify.runs import TIMEOUT_S, committed_by, verify_cluster

pytestmark = [pytest.mark.timeout(TIMEOUT_S), pytest.mark.java]
# Writers are killed and replaced. The copier is not killed before it has committed: on a busy machine, a new JVM needs
# half of the run to start.
SEED = 11


@pytest.mark.engines
def test_java_clients_work_among_faults_and_accuse_no_correct_broker(
    start_broker: StartBroker, java_clients: str, tmp_path: Path
) -> None:
    history = tmp_path / "history.jsonl"
    verdict = verify_cluster(
        start_broker().bootstrap_servers,
        history,
        *("--clients", "java=2", "--java-clients", java_clients, "--seconds", "15", "--seed", str(SEED)),
    )
    assert (verdict.exit_code, verdict.kinds) == (0, set()), verdict.stderr
    committed = committed_by(history)
    assert committed["java-writer"], committed
    assert committed["java-copier"], committed
    assert verdict.report["aborted"] > 0


@pytest.mark.slow
def test_java_clients_catch_a_broken_broker(java_clients: str, tmp_path: Path) -> None:
    with MutantBroker("lso-too-far") as broker:
        verdict = verify_cluster(
            broker.bootstrap_servers,
            tmp_path / "history.jsonl",
            *("--clients", "java=1", "--java-clients", java_clients, "--seconds", "4", "--faults", "none"),
        )
    assert verdict.kinds & {"precommitted-read", "G1a"}, verdict.stderr


@pytest.mark.slow
def test_no_java_process_outlives_a_run_that_is_killed(start_broker: StartBroker, java_clients: str) -> None:
    running = start_fencepost(
        *("verify", "cluster", "--bootstrap", start_broker().bootstrap_servers, "--clients", "java=1"),
        *("--java-clients", java_clients, "--faults", "none", "--nemesis", "true", "--nemesis-every", "500ms"),
    )
    assert running.stderr is not None
    while "fault: true" not in running.stderr.readline():
        assert running.poll() is None, running.communicate()
    children = psutil.Process(running.pid).children(recursive=True)
    assert any(child.name() == "java" for child in children)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []


@pytest.mark.parametrize(
    ("arguments", "environment", "problem"),
    [
        ((), {}, "--clients java: kafka-clients is not named"),
        (("--java-clients", "/nowhere"), {}, "--clients java: /nowhere does not exist"),
        (("--java-clients", "{empty}"), {}, "there is no kafka-clients jar in"),
        (("--java-clients", "{jars}"), {"JAVA_HOME": "/nowhere"}, "--clients java: /nowhere/bin/java does not exist"),
    ],
)
def test_what_is_missing_for_java_clients_is_named(
    start_broker: StartBroker,
    java_clients: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    environment: dict[str, str],
    problem: str,
) -> None:
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    given = [word.format(empty=tmp_path, jars=java_clients) for word in arguments]
    servers = start_broker().bootstrap_servers
    done = run_fencepost("verify", "cluster", "--bootstrap", servers, "--clients", "java", *given)
    assert done.returncode == 1
    assert problem in done.stderr
    assert "hint: " in done.stderr


def test_a_library_without_its_jars_is_named(start_broker: StartBroker, java_clients: str) -> None:
    alone = next(Path(java_clients).glob("kafka-tools-api*.jar"))
    done = run_fencepost(
        *("verify", "cluster", "--bootstrap", start_broker().bootstrap_servers, "--clients", "java"),
        *("--java-clients", str(alone)),
    )
    assert done.returncode == 1
    assert "the Java client does not compile with" in done.stderr
