"""The demos of Learn step by step: each step has its requests, states and records, as the broker's own log has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from fencepost.client.client import KafkaClient
from fencepost.diagnose.collect.transactions import collect_history
from fencepost.spark.connector import connector_jars
from fencepost.web.learn.demos import DEMOS
from fencepost.web.learn.stepping import DemoRun
from tests.engines.java import java_home

STEP_S = 120.0


@pytest.fixture
def start() -> Iterator[Callable[[str], DemoRun]]:
    runs: list[DemoRun] = []

    def start(name: str) -> DemoRun:
        runs.append(DemoRun(DEMOS[name], pace_s=0.01))
        return runs[-1]

    yield start
    for run in runs:
        run.close()


def take_step(run: DemoRun) -> dict[str, Any]:
    run.next()
    run.await_pause(STEP_S)
    return run.document()


def play_through(run: DemoRun) -> dict[str, Any]:
    """Step by step to the end; every step but the last report adds one."""
    document = take_step(run)
    while document["status"] == "paused":
        before = len(document["steps"])
        document = take_step(run)
        assert len(document["steps"]) in (before, before + 1)
    assert document["status"] == "done", document["failure"]
    assert document["report"]["holds"], document["report"]
    return document


def states(step: dict[str, Any]) -> list[str]:
    return [record["state"] for record in step["records"]]


def test_brew_is_stepped_from_the_registration_to_complete(start: Callable[[str], DemoRun]) -> None:
    run = start("brew")
    assert run.document()["steps"] == []
    registered = take_step(run)["steps"][-1]
    assert [rpc["name"] for rpc in registered["rpcs"]] == ["InitProducerId"]
    assert states(registered) == ["Empty"]
    begun = take_step(run)["steps"][-1]
    assert (begun["rpcs"], begun["records"]) == ([], [])
    written = take_step(run)["steps"][-1]
    assert {"Produce"} <= {rpc["name"] for rpc in written["rpcs"]}
    assert set(states(written)) == {"Ongoing"}
    assert written["txns"][0]["state"] == "Ongoing"
    assert len(written["txns"][0]["partitions"]) == 3
    committed = take_step(run)["steps"][-1]
    assert [(rpc["name"], rpc["about"], rpc["result"]) for rpc in committed["rpcs"]] == [("EndTxn", "commit", "NONE")]
    assert states(committed) == ["PrepareCommit", "CompleteCommit"]
    assert committed["txns"][0]["state"] == "CompleteCommit"
    assert "CompleteCommit" in committed["sentence"]


def test_a_step_that_is_asked_for_at_once_is_done(start: Callable[[str], DemoRun]) -> None:
    """Even if the thread of the demo has not begun to wait for it."""
    assert len(take_step(start("brew"))["steps"]) == 1


def test_the_steps_of_brew_have_every_record_of_the_transaction_log(start: Callable[[str], DemoRun]) -> None:
    run = start("brew")
    document = take_step(run)
    while len(document["steps"]) < 10:  # Registration, and three orders with three steps each.
        document = take_step(run)
    shown = [record for step in document["steps"] for record in step["records"]]
    assert run._broker is not None
    with closing(KafkaClient({"bootstrap.servers": run._broker.bootstrap_servers})) as client:
        entries = collect_history(client, shown[0]["transactional_id"]).entries
    assert [(r["offset"], r["state"], r["producer_epoch"]) for r in shown] == [
        (e.offset, e.txn.state.kafka_name, e.txn.producer_epoch) for e in entries if e.txn is not None
    ]
    ends = [step["records"][-1]["state"] for step in document["steps"] if step["records"]]
    assert [end for end in ends if end.startswith("Complete")] == ["CompleteCommit", "CompleteAbort", "CompleteCommit"]


@pytest.mark.engines
def test_a_demo_that_is_played_pauses_on_request_and_goes_on(start: Callable[[str], DemoRun]) -> None:
    run = start("brew")
    run.play()
    run.await_pause(STEP_S)
    run.pause()
    run.await_pause(STEP_S)
    paused = run.document()
    assert paused["status"] == "paused"
    assert not paused["playing"]
    document = play_through(run)
    assert len(document["steps"]) == 10


def test_a_closed_run_leaves_no_broker_and_no_folder(start: Callable[[str], DemoRun]) -> None:
    run = start("brew")
    take_step(run)
    broker = run._broker
    assert broker is not None
    assert broker.data is not None
    run.close()
    assert run.document()["status"] == "closed"
    assert not broker.is_running
    assert not broker.data.exists()


@pytest.mark.engines
def test_isolation_moves_the_clock_instead_of_waiting_for_the_timeout(start: Callable[[str], DemoRun]) -> None:
    document = play_through(start("isolation"))
    last = document["steps"][-1]
    assert states(last) == ["PrepareAbort", "CompleteAbort"]
    assert "because it was open for longer than its timeout" in last["records"][0]["what"]


def test_read_shows_the_fetch_that_brought_the_records(start: Callable[[str], DemoRun]) -> None:
    steps = play_through(start("read"))["steps"]
    for isolation in ("read_uncommitted", "read_committed"):
        of_reader = [step for step in steps if step["sentence"].startswith(f"{isolation} gets")]
        fetches = [rpc for step in of_reader for rpc in step["rpcs"]]
        assert of_reader[0]["rpcs"]  # The first record came with a Fetch.
        assert {rpc["name"] for rpc in fetches} == {"Fetch"}
        assert all(rpc["about"].startswith(f"{isolation}  brew.") and rpc["result"] == "NONE" for rpc in fetches)
        assert {step["without_rpcs"] for step in of_reader} == {
            "No request was sent: the record came with an earlier Fetch."
        }
    assert {rpc["name"] for rpc in steps[0]["rpcs"]} >= {"InitProducerId", "EndTxn"}


@pytest.mark.engines
@pytest.mark.parametrize(("demo", "least_steps"), [("zombie", 7), ("recovery", 12)])
def test_the_demo_can_be_stepped_to_its_end(start: Callable[[str], DemoRun], demo: str, least_steps: int) -> None:
    document = play_through(start(demo))
    assert len(document["steps"]) >= least_steps


@pytest.mark.engines
def test_recovery_shows_the_state_on_disk_while_the_broker_is_down(start: Callable[[str], DemoRun]) -> None:
    run = start("recovery")
    take_step(run)
    killed = take_step(run)["steps"][-1]
    assert killed["states_on_disk"] == {"brew-order-service": "PrepareCommit"}
    restarted = take_step(run)["steps"][-1]
    assert states(restarted) == ["PrepareCommit", "CompleteCommit"]


@pytest.mark.engines
@pytest.mark.java
@pytest.mark.timeout(400)
def test_refunds_is_stepped_with_a_real_spark(start: Callable[[str], DemoRun], monkeypatch: pytest.MonkeyPatch) -> None:
    if java_home() is not None:
        monkeypatch.setenv("JAVA_HOME", str(java_home()))
    if (missing := DEMOS["refunds"].why_not()) is not None:
        pytest.skip(missing)
    if connector_jars() is None:
        pytest.skip("no jars of Spark's Kafka connector; `make setup` fetches them")
    document = play_through(start("refunds"))
    assert sum("kill -9" in step["sentence"] for step in document["steps"]) == 3
    assert document["counted"] == (1000, 1000)
