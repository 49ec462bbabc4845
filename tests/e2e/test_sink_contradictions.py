"""Where the checkpoint, the commit notes and the calls of the sink contradict each other, the sink refuses.

Without Spark (`sparkless.py`). What Spark itself does in these cases is tried in `spark/test_contradictions.py`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from traceback import format_exception
from typing import Any, NoReturn

import pytest

from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.client.transaction import Transaction
from fencepost.spark.driver.batch_transaction import BatchTransaction
from fencepost.spark.driver.owner import TransactionOwner
from fencepost.spark.failures import BatchRefused, SinkError, SinkFenced
from fencepost.testing import Broker
from tests.e2e.conftest import StartBroker
from tests.e2e.spark.streams import create_topic, is_free
from tests.engines.sparkless import OUTPUT, TRANSACTIONAL_ID, Query, sink_of, write_values
from tests.readers.reading import read_all


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path / "checkpoint")


@pytest.fixture
def broker(start_broker: StartBroker) -> Broker:
    broker = start_broker()
    for topic in (OUTPUT, "in"):
        create_topic(broker.bootstrap_servers, topic, 1)
    return broker


def values(broker: Broker) -> list[str]:
    return [record.value for record in read_all(broker.bootstrap_servers, [OUTPUT])]


def run_once(broker: Broker, query: Query, batch_id: int, rows: list[str], **more: Any) -> str:
    """In a driver of its own."""
    sink = sink_of(broker.bootstrap_servers, query.checkpoint, **more)
    try:
        return query.elsewhere().run(sink, batch_id, rows)
    finally:
        sink.close()


def die_in(query: Query, broker: Broker, batch_id: int, rows: list[str]) -> None:
    """The driver is killed with the rows written, and the transaction open."""

    def die(*_: object, **__: object) -> NoReturn:
        raise SystemExit

    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit):
        patched.setattr(TransactionOwner, "commit", die)
        patched.setattr(TransactionOwner, "abort", die)
        run_once(broker, query, batch_id, rows)


# --- a restored checkpoint --------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [{"run_batch": 1}, {"skip_batch": 1}], ids=str)
def test_a_restored_checkpoint_whose_offsets_only_count_is_refused_before_new_rows_pass_for_written_ones(
    broker: Broker, tmp_path: Path, answer: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(tmp_path / "checkpoint", reads_files=True)
    assert run_once(broker, query, 0, ["day 1"]) == "committed"
    shutil.copytree(query.checkpoint, tmp_path / "copy")
    assert run_once(broker, query, 1, ["day 2"]) == "committed"
    assert run_once(broker, query, 1, ["day 2"]) == "skipped", "the plan is the same, so Spark runs it again"
    shutil.rmtree(query.checkpoint)
    (tmp_path / "copy").rename(query.checkpoint)
    with pytest.raises(BatchRefused, match=r"Spark planned it anew at .* the rows may be others"):
        run_once(broker, query, 1, ["day 2", "day 3"])
    expected = ["day 1", "day 2"]
    for _ in range(2):  # The answer holds until the micro-batch is written, and does not write it twice.
        run_once(broker, query, 1, ["day 2", "day 3"], **answer)
    assert f"because of {next(iter(answer))}=1, although micro-batch 1 is committed" in caplog.text
    assert values(broker) == ([*expected, "day 2", "day 3"] if "run_batch" in answer else expected)


# --- a lost checkpoint ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"group_id": "new"}], ids=str)
def test_an_adopting_query_that_starts_from_the_beginning_is_refused_and_the_hint_leads_to_the_right_place(
    broker: Broker, query: Query, tmp_path: Path, settings: dict[str, str]
) -> None:
    """A group that the old query did not have knows as little as none."""
    for batch_id, value in enumerate("ab"):
        run_once(broker, query, batch_id, [value])
    anew = Query(tmp_path / "anew")
    with pytest.raises(BatchRefused) as refused:
        run_once(broker, anew, 0, ["a", "b"], **settings)
    for checkpoint in ("anew", "again"):
        with pytest.raises(BatchRefused, match="would be written twice") as refused_again:
            run_once(broker, Query(tmp_path / checkpoint), 0, ["a", "b"], adopt=query.query_id, **settings)
    for said in (str(refused.value), str(refused_again.value)):
        typed = said.partition("startingOffsets\", '")[2].partition("')")[0]
        assert json.loads(typed) == {"in": {"0": 2}}
    right = Query(tmp_path / "right", start=2)
    assert run_once(broker, right, 0, ["c"], adopt=query.query_id, **settings) == "committed"
    assert values(broker) == ["a", "b", "c"]


def test_an_adopting_query_that_reads_files_runs_only_if_the_user_says_so(
    broker: Broker, query: Query, tmp_path: Path
) -> None:
    run_once(broker, query, 0, ["a"])
    files = Query(tmp_path / "files", reads_files=True)
    for other in ({}, {"run_batch": 1}):
        with pytest.raises(BatchRefused, match="this query reads source 0"):
            run_once(broker, files, 0, ["a", "b"], adopt=query.query_id, **other)
    sink = sink_of(broker.bootstrap_servers, files.checkpoint, adopt=query.query_id, run_batch=0)
    try:
        assert files.run(sink, 0, []) == "empty"
        assert files.run(sink, 1, ["b"]) == "committed", "the answer holds for the run, though nothing was written"
    finally:
        sink.close()
    assert values(broker) == ["a", "b"]


def test_a_query_with_sources_elsewhere_continues_where_its_predecessor_ended_though_the_group_is_behind(
    broker: Broker, start_broker: StartBroker, query: Query, tmp_path: Path
) -> None:
    source = start_broker()
    create_topic(source.bootstrap_servers, "in", 1)
    elsewhere: dict[str, Any] = {"fencepost_source_bootstrap_servers": source.bootstrap_servers, "group_id": "lag"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("fencepost.spark.driver.lag_group.commit_offsets", lambda *_, **__: _raise(ClientError("no")))
        run_once(broker, query, 0, ["a"], **elsewhere)
    adopting = sink_of(broker.bootstrap_servers, tmp_path / "anew", adopt=query.query_id, **elsewhere)
    try:
        assert json.loads(adopting.starting_offsets(["in"])) == {"in": {"0": 1}}
    finally:
        adopting.close()


def _raise(error: Exception) -> NoReturn:
    raise error


# --- another transactional.id, or another cluster -----------------------------------------------------------------


@pytest.mark.parametrize("answer", [{"run_batch": 1}, {"skip_batch": 1}], ids=str)
def test_a_transactional_id_that_was_changed_after_a_crash_is_refused_and_the_hint_frees_the_readers(
    broker: Broker, query: Query, answer: dict[str, int]
) -> None:
    servers = broker.bootstrap_servers
    run_once(broker, query, 0, ["a"])
    die_in(query, broker, 1, ["b"])
    for _ in range(2):
        with pytest.raises(BatchRefused, match=f"transactional.id {TRANSACTIONAL_ID}, but .* transactional.id changed"):
            run_once(broker, query, 1, ["b"], transactional_id="changed")
    assert not is_free(servers, OUTPUT), "readers wait for the abandoned transaction"
    with KafkaClient({"bootstrap.servers": servers}) as client:
        TransactionOwner(client, TRANSACTIONAL_ID, 60_000)  # As `fencepost txn fence` does.
    assert is_free(servers, OUTPUT)
    run_once(broker, query, 1, ["b"], transactional_id="changed", **answer)
    assert run_once(broker, query, 2, ["c"], transactional_id="changed") == "committed"
    assert values(broker) == (["a", "b", "c"] if "run_batch" in answer else ["a", "c"])


def test_a_transactional_id_may_change_after_a_clean_stop_and_a_crash_after_that_does_no_harm(
    broker: Broker, query: Query
) -> None:
    run_once(broker, query, 0, ["a"])

    def crash(frame: Any, transaction: BatchTransaction) -> NoReturn:
        write_values(frame, transaction)
        raise SystemExit

    sink = sink_of(broker.bootstrap_servers, query.checkpoint, transactional_id="changed")
    with pytest.raises(SystemExit):
        query.run(sink, 1, ["b"], crash)
    sink.close()
    assert run_once(broker, query, 1, ["b"], transactional_id="changed") == "committed"
    with pytest.raises(BatchRefused, match=r"transactional\.id changed, but"):
        run_once(broker, query, 1, ["b"])
    assert values(broker) == ["a", "b"]


def test_a_micro_batch_that_another_cluster_may_have_is_refused(
    broker: Broker, start_broker: StartBroker, query: Query
) -> None:
    die_in(query, broker, 0, ["a"])
    other = start_broker()
    create_topic(other.bootstrap_servers, OUTPUT, 1)
    with pytest.raises(BatchRefused, match=r"this run has bootstrap\.servers cluster"):
        run_once(other, query, 0, ["a"])
    assert run_once(broker, query, 0, ["a"]) == "committed"
    assert values(broker) == ["a"]


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "not told"])
def test_a_checkpoint_that_was_set_back_does_not_let_the_transactional_id_change(
    broker: Broker, query: Query, tmp_path: Path, is_told: bool
) -> None:
    """A user who is told that the checkpoint was set back may try this, and would write rows twice."""
    run_once(broker, query, 0, ["a"])
    shutil.copytree(query.checkpoint, tmp_path / "copy")
    for batch_id, value in ((1, "b"), (2, "c")):
        run_once(broker, query, batch_id, [value])
    shutil.rmtree(query.checkpoint)
    (tmp_path / "copy").rename(query.checkpoint)
    if is_told:
        with pytest.raises(BatchRefused, match="the checkpoint was set back"):
            run_once(broker, query, 1, ["b"])
    with pytest.raises(BatchRefused, match=r"but this run has transactional\.id changed"):
        run_once(broker, query, 1, ["b"], transactional_id="changed")
    assert values(broker) == ["a", "b", "c"]


# --- a function that catches the sink's exceptions ------------------------------------------------------------------


class Flaky:
    """Writes the rows from the second call on."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, frame: Any, transaction: BatchTransaction) -> None:
        write_values(frame, transaction)
        self.calls += 1
        if self.calls == 1:
            raise ValueError("the first call fails")


def test_a_function_that_tries_a_failed_micro_batch_again_gets_it_written(broker: Broker, query: Query) -> None:
    sink = sink_of(broker.bootstrap_servers, query.checkpoint)
    try:
        with pytest.raises(ValueError, match="the first call fails"):
            query.run(sink, 0, ["a"], flaky := Flaky())
        assert query.run(sink, 0, ["a"], flaky) == "committed"
        with pytest.raises(SinkError, match="was called for micro-batch 0 before"):
            query.run(sink, 0, ["a"])
        assert query.run(sink, 1, ["b"]) == "committed"
    finally:
        sink.close()
    assert values(broker) == ["a", "b"]


def test_a_query_with_state_does_not_try_a_failed_micro_batch_again(broker: Broker, query: Query) -> None:
    (query.checkpoint / "state").mkdir()
    sink = sink_of(broker.bootstrap_servers, query.checkpoint)
    try:
        with pytest.raises(ValueError, match="the first call fails"):
            query.run(sink, 0, ["a"], flaky := Flaky())
        with pytest.raises(SinkError, match="a query with state cannot try it again"):
            query.run(sink, 0, ["a"], flaky)
        query.restart()
        assert query.run(sink, 0, ["a"], flaky) == "committed", "a new run may"
    finally:
        sink.close()
    assert values(broker) == ["a"]


def test_a_driver_that_goes_on_after_it_was_fenced_tells_the_next_run(broker: Broker, query: Query) -> None:
    sink = sink_of(broker.bootstrap_servers, query.checkpoint)
    query.run(sink, 0, ["a"])
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        TransactionOwner(client, TRANSACTIONAL_ID, 60_000)  # Another driver, which ends before it writes anything.
    with pytest.raises(SinkFenced) as fenced:
        query.run(sink, 1, ["b"])
    assert "direct cause" not in "".join(format_exception(fenced.value)), (
        "Spark would print all of it before the message"
    )
    with pytest.raises(SinkError, match=r"micro-batch 1 failed .SinkFenced"):
        query.run(sink, 2, ["c"])
    sink.close()
    with pytest.raises(BatchRefused, match="micro-batch 1 failed in an earlier run"):
        run_once(broker, query, 2, ["c"])
    assert values(broker) == ["a"]


def test_rows_for_which_a_function_calls_the_sink_inside_its_own_micro_batch_are_not_left_out(
    broker: Broker, query: Query
) -> None:
    sink = sink_of(broker.bootstrap_servers, query.checkpoint)

    def nested(frame: Any, transaction: BatchTransaction) -> None:
        write_values(frame, transaction)
        with suppress(SinkError):
            sink(query.frame(["more"]), transaction.batch_id)

    with pytest.raises(SinkError, match="micro-batch 0 is not complete"):
        query.run(sink, 0, ["a"], nested)
    sink.close()
    assert values(broker) == []


async def _asynchronous(frame: Any, transaction: BatchTransaction) -> None:
    write_values(frame, transaction)


def _generator(frame: Any, transaction: BatchTransaction) -> Iterator[None]:
    write_values(frame, transaction)
    yield


async def _asynchronous_generator(frame: Any, transaction: BatchTransaction) -> AsyncIterator[None]:
    write_values(frame, transaction)
    yield


class _Callable:
    async def __call__(self, frame: Any, transaction: BatchTransaction) -> None:
        write_values(frame, transaction)


@pytest.mark.parametrize(
    "write",
    [_asynchronous, _generator, _asynchronous_generator, partial(_asynchronous), _Callable()],
    ids=["asynchronous", "generator", "asynchronous generator", "partial", "object"],
)
def test_a_function_that_writes_only_when_it_is_awaited_is_refused_where_it_is_decorated(
    broker: Broker, query: Query, write: Callable[..., Awaitable[None] | Iterator[None]]
) -> None:
    sink = sink_of(broker.bootstrap_servers, query.checkpoint)
    with pytest.raises(SinkError, match="write it as a plain function"):
        sink.batch(write)
    with pytest.raises(SinkError, match="write it as a plain function"):
        query.run(sink, 0, ["a"], lambda *given: write(*given))
    sink.close()
    assert values(broker) == []


# --- an interruption ------------------------------------------------------------------------------------------------


def test_a_micro_batch_that_was_committed_just_before_an_interruption_is_not_run_again(
    broker: Broker, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the answer to the commit and the line that stores it, with the same sink afterwards."""
    sink = sink_of(broker.bootstrap_servers, query.checkpoint)
    query.run(sink, 0, ["a"])
    commit = Transaction.commit

    def interrupt(transaction: Transaction) -> NoReturn:
        commit(transaction)
        raise KeyboardInterrupt

    monkeypatch.setattr(Transaction, "commit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        query.run(sink, 1, ["b"])
    monkeypatch.undo()
    query.restart()
    assert query.run(sink, 1, ["b"]) == "skipped"
    sink.close()
    assert values(broker) == ["a", "b"]
