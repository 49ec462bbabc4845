"""The owner of the sink's transactional id: commits without an answer, forgotten ids, drivers that wake up.

Without Spark (`sparkless.py`), because each of these has to happen between two lines of the sink.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from confluent_kafka import Consumer

from fencepost.client.admin.offsets import commit_offsets
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError, OutcomeUnknown
from fencepost.spark.driver.batch_transaction import BatchTransaction
from fencepost.spark.driver.commit_note import note_group
from fencepost.spark.driver.jobs import Jobs
from fencepost.spark.driver.owner import TransactionOwner
from fencepost.spark.driver.progress import BatchProgress
from fencepost.spark.failures import BatchBroken, BatchRefused, QueryStopped, SinkError, SinkFenced
from fencepost.spark.format.python_side import _answer
from fencepost.spark.lease.client import LeaseClient
from fencepost.spark.lease.messages import TaskAttempt
from fencepost.spark.sink import ExactlyOnceSink
from fencepost.spark.task.run import write_rows
from fencepost.testing import Broker
from tests.e2e.conftest import StartBroker
from tests.e2e.spark.streams import create_topic
from tests.engines.sparkless import (
    OUTPUT,
    TRANSACTIONAL_ID,
    Query,
    sink_of,
    use_transaction_version_1,
    write_values,
)
from tests.readers.reading import read_all

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
SAYS_IT_IS_VERIFIED: dict[str, Any] = {"fencepost_transaction_partition_verification_enable": "true"}
FORGETFUL = {"transactional.id.expiration.ms": str(HOUR_MS)}


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path / "checkpoint")


@pytest.fixture
def broker(start_broker: StartBroker) -> Broker:
    return with_topics(start_broker())


def with_topics(broker: Broker) -> Broker:
    for topic in (OUTPUT, "in", "other"):
        create_topic(broker.bootstrap_servers, topic, 1)
    return broker


@contextmanager
def closing(*sinks: ExactlyOnceSink) -> Iterator[None]:
    try:
        yield
    finally:
        for sink in sinks:
            sink.close()


def values(broker: Broker) -> list[str]:
    return [record.value for record in read_all(broker.bootstrap_servers, [OUTPUT])]


# --- commits without a clear answer -------------------------------------------------------------------------


def test_a_micro_batch_whose_commit_was_unclear_is_not_written_again_though_its_note_could_not_be_read(
    broker: Broker, query: Query
) -> None:
    sink = sink_of(broker.bootstrap_servers, query.checkpoint)
    with closing(sink):
        query.run(sink, 0, ["a"])
        # The broker commits, but answers with an error. Then the group's coordinator fails once.
        broker.faults.inject_error("EndTxn", "UNKNOWN_SERVER_ERROR", at="reply", times=1)
        broker.faults.inject_error("OffsetFetch", "UNKNOWN_SERVER_ERROR", times=1)
        with pytest.raises(ClientError):
            query.run(sink, 1, ["b"])
        query.restart()
        assert query.run(sink, 1, ["b"]) == "skipped"
    assert values(broker) == ["a", "b"]


def test_commit_notes_count_on_after_one_that_could_not_be_read(broker: Broker, query: Query) -> None:
    """The note with the highest number is the last. A note that started to count again would pass for an old one."""
    first = sink_of(broker.bootstrap_servers, query.checkpoint)
    with closing(first), KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        for batch_id in range(3):
            query.run(first, batch_id, [str(batch_id)])
        first.close()
        commit_offsets(client, note_group(TRANSACTIONAL_ID), {("other", 0): 5})
        second = ExactlyOnceSink(first._given, run_batch=3)
        with closing(second):
            query.restart()
            query.run(second, 3, ["3"])
            assert second._runner is not None
            note: Any = second._runner.owner.note
            assert note.number == 4


# --- transactions that outlive their timeout ------------------------------------------------------------------


@pytest.mark.parametrize("stalls", ["TxnOffsetCommit", "Produce"])
def test_a_micro_batch_is_not_blamed_for_a_broker_that_stalls(broker: Broker, query: Query, stalls: str) -> None:
    sink = sink_of(broker.bootstrap_servers, query.checkpoint, transaction_timeout_ms=1000)
    with closing(sink):
        broker.faults.delay_on(stalls, 1500, times=None)
        with pytest.raises(BatchBroken, match=r"for [0-9]{3,} ms of them it waited for brokers") as failed:
            query.run(sink, 0, ["a"])
        assert "twice in a row" not in str(failed.value), "it was worth all three attempts"
        assert "hint: find out which broker" in str(failed.value)
    assert values(broker) == []


def test_the_only_attempt_of_a_micro_batch_with_state_names_the_timeout_that_it_outlived(
    broker: Broker, query: Query
) -> None:
    sink = sink_of(broker.bootstrap_servers, query.checkpoint, max_attempts=1, transaction_timeout_ms=1000)

    def write(frame: Any, transaction: BatchTransaction) -> None:
        write_values(frame, transaction)
        while [txn.state for txn in broker.transactions()] == ["Ongoing"]:
            time.sleep(0.05)

    with closing(sink), pytest.raises(BatchBroken, match=r"longer than transaction\.timeout\.ms=1000") as failed:
        query.run(sink, 0, ["a"], write)
    assert "hint: raise transaction.timeout.ms" in str(failed.value)


# --- the last check, while the offsets are on their way -------------------------------------------------------


@pytest.fixture
def last_check(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Replaces the check of Spark's jobs before the first commit; later ones find nothing."""

    def replace(check: Callable[[], None]) -> None:
        checks = [check]
        monkeypatch.setattr(Jobs, "check", lambda self: checks.pop()() if checks else None)

    return replace


@pytest.mark.parametrize("offsets_fail", [False, True])
def test_a_check_that_fails_while_the_offsets_are_on_their_way_keeps_the_commit_from_being_sent(
    broker: Broker, query: Query, last_check: Callable[..., None], offsets_fail: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ends = broker.faults.delay_on("EndTxn", 0, times=None)
    if offsets_fail:
        offsets = broker.faults.inject_error("TxnOffsetCommit", "GROUP_AUTHORIZATION_FAILED")
    else:
        # The request waits, so it is answered after the check has failed.
        offsets = broker.faults.delay_on("TxnOffsetCommit", 500, at="request")
    seen_by_attempts: list[tuple[list[str], int]] = []

    def write(frame: Any, transaction: BatchTransaction) -> None:
        seen_by_attempts.append((values(broker), ends.hits))
        write_values(frame, transaction)

    def fail() -> None:
        offsets.wait_for_hits()
        raise BatchBroken("Spark ran stage 5 of the micro-batch again")

    sink = sink_of(broker.bootstrap_servers, query.checkpoint)
    last_check(fail)
    with closing(sink):
        assert query.run(sink, 0, ["a"], write) == "committed"
        assert sink.recent_progress[-1].attempts == 2
    # The EndTxn of the first attempt was an abort: nothing was committed when the second began.
    assert seen_by_attempts == [([], 0), ([], 1)]
    assert ends.hits == 2
    assert "is run again (attempt 2): Spark ran stage 5" in caplog.text, "the failure of the check comes first"
    assert values(broker) == ["a"]


def interrupted() -> None:
    """Raise what py4j raises when Spark interrupts the thread of a stopped query."""
    raise_java("java.lang.InterruptedException", None)


def raise_java(name: str, message: str | None) -> NoReturn:
    java = SimpleNamespace(getClass=lambda: SimpleNamespace(getName=lambda: name), getMessage=lambda: message)
    error: Any = RuntimeError(f"as py4j raises it: {message}")
    error.java_exception = java
    raise error


# --- Ctrl-C, and again ------------------------------------------------------------------------------------------


def interrupt(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt


@pytest.mark.parametrize("version", [2, 1])
@pytest.mark.parametrize("moment", ["before the abort", "while the abort is on its way"])
def test_a_second_ctrl_c_during_the_abort_costs_no_row_and_leaves_a_sink_that_goes_on(
    broker: Broker, query: Query, monkeypatch: pytest.MonkeyPatch, version: int, moment: str
) -> None:
    if version == 1:
        use_transaction_version_1(broker)
    sink = sink_of(broker.bootstrap_servers, query.checkpoint)

    def write(frame: Any, transaction: BatchTransaction) -> None:
        write_values(frame, transaction)
        assert sink._runner is not None
        attempts = sink._runner.attempts
        if moment == "before the abort":
            monkeypatch.setattr(attempts.leases, "break_transaction", interrupt)
        else:
            broker.faults.delay_on("EndTxn", 500, at="request")
            submit = attempts._thread.submit
            impatient = SimpleNamespace(submit=lambda work: submit(work) and SimpleNamespace(result=interrupt))
            monkeypatch.setattr(attempts, "_thread", impatient)
        interrupt()

    with closing(sink):
        assert query.run(sink, 0, ["a", "b"]) == "committed"
        with pytest.raises(KeyboardInterrupt):
            query.run(sink, 1, ["c", "d"], write)
        monkeypatch.undo()
        query.restart()
        assert query.run(sink, 1, ["c", "d"]) == "committed"
        assert query.run(sink, 2, ["e"]) == "committed"
    assert values(broker) == ["a", "b", "c", "d", "e"]


# --- an id that the cluster has forgotten -------------------------------------------------------------------


def take_over_and_be_forgotten(broker: Broker, query: Query) -> None:
    """Another driver runs batches 1 and 2 and ends; later the cluster forgets the transactional id."""
    # One process allows two sinks with the same id only if their addresses differ.
    sink = sink_of(broker.bootstrap_servers.replace("127.0.0.1", "localhost"), query.checkpoint)
    with closing(sink):
        other = query.elsewhere()
        other.run(sink, 1, ["b"])
        other.run(sink, 2, ["c"])
    broker.advance_clock(2 * HOUR_MS)


@pytest.mark.parametrize("version", [2, 1])
def test_a_driver_that_slept_in_a_batch_until_its_id_was_forgotten_does_not_write_it_again(
    start_broker: StartBroker, query: Query, version: int
) -> None:
    broker = with_topics(start_broker(**FORGETFUL))
    if version == 1:
        use_transaction_version_1(broker)
    sink = sink_of(broker.bootstrap_servers, query.checkpoint)
    sleeps = [lambda: take_over_and_be_forgotten(broker, query)]

    def write(frame: Any, transaction: BatchTransaction) -> None:
        if sleeps:
            sleeps.pop()()
        write_values(frame, transaction)

    with closing(sink):
        query.run(sink, 0, ["a"])
        with pytest.raises((BatchRefused, SinkError)):
            query.run(sink, 1, ["b"], write)
    assert values(broker) == ["a", "b", "c"]


# --- frames with a token --------------------------------------------------------------------------------------


@pytest.fixture
def jobs(broker: Broker, query: Query, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs a job that writes one frame, as a scheduler does: each time in a new process."""
    monkeypatch.setattr(BatchTransaction, "write", lambda self, frame, topic=None: write_values(frame, self))

    def run(values: list[str], topic: str = OUTPUT, token: str | None = "2026-11-16") -> int:
        sink = sink_of(broker.bootstrap_servers, query.checkpoint, topic=topic)
        with closing(sink):
            return sink.write(query.frame(values), token=token)

    return run


def test_a_frame_with_a_token_is_written_once_however_often_its_job_runs(
    broker: Broker, jobs: Callable[..., int]
) -> None:
    assert jobs(["a", "b"]) == 2
    assert jobs(["a", "b"]) == 2
    assert jobs(["c"], token="2026-11-17") == 1
    assert jobs(["perhaps", "other", "rows"]) == 2, "the first time counts"
    assert values(broker) == ["a", "b", "c"]
    with pytest.raises(BatchRefused, match=f"was used to write to {OUTPUT}, and now for other"):
        jobs(["a", "b"], topic="other")


@pytest.mark.parametrize("version", [2, pytest.param(1, marks=pytest.mark.engines)])
def test_a_commit_without_an_answer_is_looked_up_by_its_token(
    broker: Broker, jobs: Callable[..., int], version: int
) -> None:
    if version == 1:
        use_transaction_version_1(broker)
    broker.faults.inject_error("EndTxn", "UNKNOWN_SERVER_ERROR", at="reply", times=1)
    assert jobs(["a"]) == 1
    assert jobs(["a"]) == 1
    broker.faults.inject_error("EndTxn", "UNKNOWN_SERVER_ERROR", at="reply", times=1)
    with pytest.raises(OutcomeUnknown):
        jobs(["b"], token=None)
    assert values(broker) == ["a", "b"]


@pytest.fixture(params=["the answer is no answer", "the answer is lost"])
def doubtful(broker: Broker, request: pytest.FixtureRequest) -> Callable[[], None]:
    """The next commit is carried out, the driver does not learn it, and then it may not use its id any more."""

    def arrange() -> None:
        if request.param == "the answer is lost":
            broker.faults.disconnect_on("EndTxn", at="reply", times=1)
            broker.faults.inject_error("EndTxn", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", skip=1, times=None)
        else:
            broker.faults.inject_error("EndTxn", "UNKNOWN_SERVER_ERROR", at="reply", times=1)
        broker.faults.inject_error("InitProducerId", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", skip=1, times=None)

    return arrange


def test_a_commit_that_cannot_be_looked_up_is_not_reported_as_a_failure(
    broker: Broker, jobs: Callable[..., int], doubtful: Callable[[], None]
) -> None:
    doubtful()
    with pytest.raises(OutcomeUnknown, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        jobs(["a"], token=None)
    assert values(broker) == ["a"]


def test_a_micro_batch_whose_commit_cannot_be_looked_up_is_left_to_the_next_start(
    broker: Broker, query: Query, doubtful: Callable[[], None]
) -> None:
    doubtful()
    first, second = (sink_of(broker.bootstrap_servers, query.checkpoint) for _ in range(2))
    with closing(first), pytest.raises(OutcomeUnknown, match="its outcome cannot be looked up"):
        query.run(first, 0, ["a"])
    broker.faults.clear()
    with closing(second):
        assert query.elsewhere().run(second, 0, ["a"]) == "skipped"
    assert values(broker) == ["a"]


def test_a_stop_in_the_middle_of_a_plain_frame_is_no_failure_and_leaves_its_token_unused(
    broker: Broker, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As inside foreachBatch, by the sink or by `write.format("fencepost")`."""
    stops = [interrupted, interrupted]

    def write(transaction: BatchTransaction, frame: Any, topic: str | None = None) -> None:
        write_values(frame, transaction)
        if stops:
            stops.pop()()

    monkeypatch.setattr(BatchTransaction, "write", write)
    sink = sink_of(broker.bootstrap_servers, query.checkpoint)
    with closing(sink):
        with pytest.raises(QueryStopped, match=r"java\.lang\.InterruptedException"):
            sink.write(query.frame(["a"]), token="2026-11-16")

        def write_as_the_format_does() -> BatchProgress:
            sink.write(query.frame(["a"]), token="2026-11-16")
            return sink.recent_progress[-1]

        assert json.loads(_answer(write_as_the_format_does)) == {"stopped": True}
        assert values(broker) == []
        assert json.loads(_answer(write_as_the_format_does))["metrics"]["outcome"] == "committed"
    assert values(broker) == ["a"]


# --- another checkpoint -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("adopt", ["a query of last year", None])
def test_a_program_that_asks_for_starting_offsets_and_adopts_another_query_or_none_does_not_fence_the_pipeline(
    broker: Broker, query: Query, tmp_path: Path, adopt: str | None
) -> None:
    """The program of the guide, on a scratch checkpoint: nothing that it does first may harm production."""
    scratch = Query(tmp_path / "scratch")
    production = sink_of(broker.bootstrap_servers, query.checkpoint, adopt=adopt, group_id="lag")
    elsewhere = broker.bootstrap_servers.replace("127.0.0.1", "localhost")  # As in another process.
    with closing(production):
        assert json.loads(production.starting_offsets(["in"], "earliest")) == {"in": {"0": -2}}
        query.run(production, 0, ["a"])
        mistaken = sink_of(elsewhere, scratch.checkpoint, adopt=adopt, group_id="lag")
        with closing(mistaken):
            assert json.loads(mistaken.starting_offsets(["in"])) == {"in": {"0": 1}}
            assert query.run(production, 1, ["b"]) == "committed", "it was not fenced"
            with pytest.raises(BatchRefused, match=f'set adopt="{query.query_id}"'):
                scratch.run(mistaken, 0, ["scratch"])
        assert query.run(production, 2, ["c"]) == "committed", "nor afterwards"
        anew = Query(tmp_path / "anew", start=3)
        successor = sink_of(elsewhere, anew.checkpoint, adopt=query.query_id, group_id="lag")
        with closing(successor):
            assert json.loads(successor.starting_offsets(["in"])) == {"in": {"0": 3}}
            with pytest.raises(SinkFenced):
                query.run(production, 3, ["too late"])
            assert anew.run(successor, 0, ["d"]) == "committed"
    assert values(broker) == ["a", "b", "c", "d"]


def test_a_checkpoint_that_was_used_before_its_query_adopted_the_pipeline_does_not_write_rows_twice(
    broker: Broker, query: Query, tmp_path: Path
) -> None:
    """Spark keeps the offsets that it started with at first, and the old driver has gone on since."""
    production = sink_of(broker.bootstrap_servers, query.checkpoint, group_id="lag")
    elsewhere = broker.bootstrap_servers.replace("127.0.0.1", "localhost")  # As in another process.
    with closing(production):
        query.run(production, 0, ["a"])
        early = sink_of(elsewhere, tmp_path / "early", group_id="lag")
        with closing(early):
            start = json.loads(early.starting_offsets(["in"]))["in"]["0"]
            second = Query(tmp_path / "early", start=start)
            with pytest.raises(BatchRefused, match=f'set adopt="{query.query_id}"'):
                second.run(early, 0, ["b"])
        assert query.run(production, 1, ["b"]) == "committed", "it was not fenced"
    adopting = sink_of(elsewhere, second.checkpoint, adopt=query.query_id, group_id="lag")
    with closing(adopting):
        assert json.loads(adopting.starting_offsets(["in"])) == {"in": {"0": 2}}
        with pytest.raises(BatchRefused, match=r"starts at offset 1 of partition 0 of in, .* ended at 2 there"):
            second.restart()
            second.run(adopting, 0, ["b"])
    assert values(broker) == ["a", "b"]
    knowing = sink_of(elsewhere, second.checkpoint, adopt=query.query_id, run_batch=0, group_id="lag")
    with closing(knowing):
        assert second.elsewhere().run(knowing, 0, ["b"]) == "committed"
    assert values(broker) == ["a", "b", "b"], "the user said so"


def test_asking_for_starting_offsets_without_a_group_does_not_fence_the_pipeline(broker: Broker, query: Query) -> None:
    production = sink_of(broker.bootstrap_servers, query.checkpoint)
    elsewhere = broker.bootstrap_servers.replace("127.0.0.1", "localhost")  # As in another process.
    with closing(production):
        query.run(production, 0, ["a"])
        groupless = sink_of(elsewhere, query.checkpoint)
        with closing(groupless), pytest.raises(SinkError, match=r"hint: set group\.id"):
            groupless.starting_offsets(["in"])
        assert query.run(production, 1, ["b"]) == "committed", "it was not fenced"
    assert values(broker) == ["a", "b"]


def test_a_restart_need_not_wait_for_the_open_transaction_of_a_dead_driver_to_learn_its_starting_offsets(
    broker: Broker, query: Query
) -> None:
    """The line may stay in the program. The transaction ends when the first micro-batch takes the id over."""
    first = sink_of(broker.bootstrap_servers, query.checkpoint, group_id="lag")
    restarted = query.elsewhere()

    def die(owner: TransactionOwner, *_: object) -> NoReturn:
        raise SystemExit

    with closing(first), pytest.MonkeyPatch.context() as patched:
        query.run(first, 0, ["a"])
        patched.setattr(TransactionOwner, "commit", die)
        patched.setattr(TransactionOwner, "abort", die)
        with pytest.raises(SystemExit):
            query.run(first, 1, ["b"])  # Its offsets are in the transaction, which stays open.
    second = sink_of(broker.bootstrap_servers, query.checkpoint, group_id="lag")
    with closing(second):
        began = time.monotonic()
        assert json.loads(second.starting_offsets(["in"])) == {"in": {"0": 1}}
        assert time.monotonic() - began < 10
        assert restarted.run(second, 1, ["b"]) == "committed"
    assert values(broker) == ["a", "b"]


# --- brokers that do not show their settings ------------------------------------------------------------------


def test_a_batch_whose_note_has_expired_is_not_written_again_though_the_broker_hides_how_long_it_keeps_notes(
    start_broker: StartBroker, query: Query
) -> None:
    broker = with_topics(start_broker(offsets_retention_minutes="180", offsets_retention_check_interval_ms="1000"))
    broker.faults.inject_error("DescribeConfigs", "CLUSTER_AUTHORIZATION_FAILED", times=None)
    first = sink_of(broker.bootstrap_servers, query.checkpoint)
    with closing(first):
        assert query.run(first, 0, ["a"]) == "committed", "a new pipeline needs no permission"
    # The driver dies before Spark notes the commit, and comes back late: the broker's clock and the driver's go on.
    broker.advance_clock(4 * HOUR_MS)
    query.age(0, 4 * HOUR_MS)
    second = sink_of(broker.bootstrap_servers, query.checkpoint)
    with closing(second), pytest.raises(BatchRefused, match=r"the brokers do not show offsets\.retention\.minutes"):
        query.run(second, 0, ["a"])
    third = sink_of(broker.bootstrap_servers, query.checkpoint, fencepost_offsets_retention_minutes=180)
    with closing(third), pytest.raises(BatchRefused, match=r"planned 4\.0 hours ago, .* keeps offsets for 3\.0 hours"):
        query.run(third, 0, ["a"])
    assert values(broker) == ["a"]


def test_a_broker_that_lets_a_late_write_into_the_next_transaction_is_refused_with_its_setting(
    start_broker: StartBroker, query: Query
) -> None:
    name = "transaction.partition.verification.enable"
    broker = with_topics(start_broker(**{name: "false"}))
    modern = sink_of(broker.bootstrap_servers, query.checkpoint)
    with closing(modern):
        assert query.run(modern, 0, ["a"]) == "committed", "version 2 has an epoch for each transaction"
    use_transaction_version_1(broker)
    sink = sink_of(broker.bootstrap_servers, query.checkpoint, **SAYS_IT_IS_VERIFIED)
    with closing(sink), pytest.raises(ClientError, match=rf"broker \d+ has {name}=false"):
        query.run(sink, 1, ["b"])
    assert values(broker) == ["a"]


# --- partitions without records -----------------------------------------------------------------------------


def test_a_batch_that_announced_a_partition_and_wrote_nothing_leaves_the_sink_as_it_was(
    broker: Broker, query: Query
) -> None:
    """The task is lost while its first partition is being added, and its next attempt has no rows."""
    sink = sink_of(broker.bootstrap_servers, query.checkpoint)

    def write(frame: Any, transaction: BatchTransaction) -> None:
        assert sink._runner is not None
        leases = sink._runner.attempts.leases
        assert leases is not None
        service: Any = leases._service
        touch = service.transaction.on_first_touch
        is_touching, may_touch = threading.Event(), threading.Event()

        def touch_slowly(partitions: Any) -> None:
            is_touching.set()
            may_touch.wait(30)
            touch(partitions)

        service.transaction.on_first_touch = touch_slowly
        first = LeaseClient(transaction._plan.address, TaskAttempt(0, 0, 1), 0)
        first._driver.tell({"op": "acquire", "wants": {OUTPUT: [0, 1]}})
        assert is_touching.wait(30)
        first.close()
        deadline = time.monotonic() + 30
        while service.transaction.connections and time.monotonic() < deadline:
            time.sleep(0.01)
        may_touch.set()
        with LeaseClient(transaction._plan.address, TaskAttempt(0, 0, 2), 1) as second:
            transaction.results.append(second.done({}))
        transaction.input_partitions[0] = 1

    with closing(sink):
        assert query.run(sink, 0, [], write) == "empty"
        assert query.run(sink, 1, ["b"]) == "committed"
    assert values(broker) == ["b"]


def test_rows_that_an_attempt_never_saw_are_not_lost_with_its_executor(broker: Broker, query: Query) -> None:
    """Its Python worker takes the end of the socket for the end of the rows, and reports that it is done."""
    sink = sink_of(broker.bootstrap_servers, query.checkpoint)
    attempts: list[int] = []

    def write(frame: Any, transaction: BatchTransaction) -> None:
        attempts.append(len(attempts))
        plan = transaction._plan._replace(topic=OUTPUT, topics={OUTPUT: transaction._pin_once(OUTPUT)})
        rows = [pa.RecordBatch.from_pydict({"value": pa.array([value.encode()])}) for value in frame.values]
        if len(attempts) == 1:
            write_rows(plan, TaskAttempt(0, 0, 1), rows[:1], 0)
        result = write_rows(plan, TaskAttempt(0, 0, 2), rows, 1)
        transaction.results.append(result)
        transaction.input_partitions[0] = 1

    with closing(sink):
        assert query.run(sink, 0, ["a", "b"], write) == "committed"
    assert len(attempts) == 2
    assert values(broker) == ["a", "b"]


# --- the group of the sources -------------------------------------------------------------------------------


def test_a_group_whose_offsets_were_forgotten_is_not_taken_for_one_that_read_nothing(
    start_broker: StartBroker, query: Query, tmp_path: Path
) -> None:
    broker = with_topics(start_broker(**{"log.retention.ms": "-1"}))
    sink = sink_of(broker.bootstrap_servers, query.checkpoint, group_id="lag")
    with closing(sink):
        assert json.loads(sink.starting_offsets(["in"])) == {"in": {"0": -2}}  # A new pipeline.
        query.run(sink, 0, ["a"])
        assert json.loads(sink.starting_offsets(["in"])) == {"in": {"0": 1}}
    broker.advance_clock(8 * DAY_MS)
    anew = sink_of(broker.bootstrap_servers, tmp_path / "anew", adopt=query.query_id, group_id="lag")
    with closing(anew):
        with pytest.raises(SinkError, match=r"offsets\.retention\.minutes"):
            anew.starting_offsets(["in"])
        assert json.loads(anew.starting_offsets(["in"], otherwise="latest")) == {"in": {"0": -1}}


def test_members_of_either_protocol_keep_the_sink_out_of_their_group(broker: Broker, query: Query) -> None:
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "lag", "group.protocol": "consumer"}
    consumer = Consumer(config)
    consumer.subscribe(["in"])
    deadline = time.monotonic() + 30
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(0.1)
    sink = sink_of(broker.bootstrap_servers, query.checkpoint, group_id="lag")
    with closing(sink), pytest.raises(SinkError, match="has 1 members"):
        query.run(sink, 0, ["a"])
    consumer.close()
    assert values(broker) == []
