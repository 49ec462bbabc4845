"""Faults on demand: each kind, on real clients, by the broker itself and by a tap before it.

The tests of the guide are run by `test_guides.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from fencepost.protocol import errors
from fencepost.protocol.messages import EndTxnRequest, HeartbeatRequest, InitProducerIdRequest
from fencepost.testing import Broker, OrderRefused, Tap
from tests.e2e.clients.confluent import text_of
from tests.readers.reading import connect

TIMEOUT_S = 60.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


Front = Broker | Tap


@pytest.fixture(params=["broker", "tap"])
def front(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Front]:
    """What clients connect to, and what has the faults: the broker, or a tap before it."""
    if request.param == "broker":
        yield broker
        return
    with Tap(broker.bootstrap_servers) as tap:
        yield tap


def producer_of(broker: Front, transactional_id: str = "orders-1", **settings: object) -> Producer:
    config = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id, "log_level": 0}
    producer = Producer(config | {name.replace("_", "."): value for name, value in settings.items()})
    producer.init_transactions(TIMEOUT_S)
    return producer


def begin_and_send(producer: Producer, value: str) -> None:
    producer.begin_transaction()
    producer.produce("orders", value)
    assert producer.flush(TIMEOUT_S) == 0


def committed(broker: Front, count: int) -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    try:
        values: list[str] = []
        for _ in range(count):
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"{len(values)} of {count} records came"
            values.append(text_of(message))
        return values
    finally:
        consumer.close()


# --- each kind of fault -----------------------------------------------------------------------------------


def test_a_request_that_is_refused_is_not_served_and_a_reply_that_is_changed_is_to_one_that_was(front: Front) -> None:
    with connect(front.bootstrap_servers) as client:
        granted = client.call(InitProducerIdRequest("t", 60_000, -1, -1), version=4)
        front.faults.inject_error("InitProducerId", "NOT_COORDINATOR")
        refused = client.call(InitProducerIdRequest("t", 60_000, -1, -1), version=4)
        assert (refused.error_code, refused.producer_id) == (errors.NOT_COORDINATOR, -1)
        assert client.call(InitProducerIdRequest("t", 60_000, -1, -1), version=4).producer_epoch == (
            granted.producer_epoch + 1
        )
        front.faults.inject_error("INIT_PRODUCER_ID", errors.NOT_COORDINATOR, at="reply")
        changed = client.call(InitProducerIdRequest("t", 60_000, -1, -1), version=4)
        assert (changed.error_code, changed.producer_id) == (errors.NOT_COORDINATOR, -1)
        assert client.call(InitProducerIdRequest("t", 60_000, -1, -1), version=4).producer_epoch == (
            granted.producer_epoch + 3
        )


def test_a_delay_holds_the_reply_back_and_the_request_if_wanted(front: Front) -> None:
    with connect(front.bootstrap_servers) as client:
        for at in ("reply", "request"):
            fault = front.faults.delay_on("Heartbeat", ms=300, at=at)
            began = time.monotonic()
            assert client.call(HeartbeatRequest("g", -1, "m"), version=4).error_code == errors.UNKNOWN_MEMBER_ID
            # The event loop counts whole milliseconds, so a timer may be up to one millisecond early.
            assert time.monotonic() - began >= 0.299
            assert fault.hits == 1


def test_a_disconnect_at_the_request_happens_before_it_is_served(front: Front) -> None:
    producer = producer_of(front)
    begin_and_send(producer, "placed")
    fault = front.faults.disconnect_on("EndTxn", at="request", times=2)
    producer.commit_transaction(TIMEOUT_S)
    assert fault.hits == 2
    assert committed(front, 1) == ["placed"]


def test_skipped_requests_pass_and_the_next_ones_are_struck(front: Front) -> None:
    fault = front.faults.inject_error("Heartbeat", "NOT_COORDINATOR", skip=1, times=2)
    with connect(front.bootstrap_servers) as client:
        codes = [client.call(HeartbeatRequest("g", -1, "m"), version=4).error_code for _ in range(4)]
    passed, struck = errors.UNKNOWN_MEMBER_ID, errors.NOT_COORDINATOR
    assert codes == [passed, struck, struck, passed]
    assert fault.hits == 2


def test_a_client_in_a_black_hole_is_cut_off_and_comes_back(front: Front) -> None:
    cut_off, other = producer_of(front, "a", client_id="svc-1"), producer_of(front, "b", client_id="svc-2")
    with front.faults.blackhole_client("svc-1") as hole:
        cut_off.begin_transaction()
        cut_off.produce("orders", "late")
        hole.wait_for_hits()
        begin_and_send(other, "in time")
        other.commit_transaction(TIMEOUT_S)
        assert cut_off.flush(0.1) == 1
    cut_off.commit_transaction(TIMEOUT_S)
    assert committed(front, 2) == ["in time", "late"]


def test_a_duplicate_needs_a_tap(front: Front) -> None:
    with connect(front.bootstrap_servers) as client:
        if isinstance(front, Broker):
            with pytest.raises(OrderRefused, match="'duplicate' is no action"):
                front.faults.duplicate_on("InitProducerId")
            return
        granted = client.call(InitProducerIdRequest("t", 60_000, -1, -1), version=4)
        fault = front.faults.duplicate_on("InitProducerId")
        again = client.call(InitProducerIdRequest("t", 60_000, -1, -1), version=4)
        assert again.producer_epoch == granted.producer_epoch + 1
        # The broker has carried out the request twice, and its client knows of one.
        after = client.call(InitProducerIdRequest("t", 60_000, -1, -1), version=4)
        assert after.producer_epoch == granted.producer_epoch + 3
        assert fault.hits == 1


# --- transactions, the clock, crashes ---------------------------------------------------------------------


def test_one_transaction_times_out_and_its_producer_gets_an_error(broker: Broker) -> None:
    late, other = producer_of(broker, "late"), producer_of(broker, "other")
    begin_and_send(late, "gone")
    begin_and_send(other, "kept")
    broker.time_out("late")
    with pytest.raises(KafkaException):
        late.commit_transaction(TIMEOUT_S)
    other.commit_transaction(TIMEOUT_S)
    assert committed(broker, 1) == ["kept"]


@pytest.mark.parametrize("reply", ["complete", "prepare"])
def test_a_producer_is_fenced_and_what_it_has_open_is_aborted(reply: str) -> None:
    with Broker(settings={"fencepost.endtxn.reply": reply}) as broker:
        producer = producer_of(broker)
        begin_and_send(producer, "gone")
        broker.fence("orders-1")
        with pytest.raises(KafkaException) as caught:
            producer.commit_transaction(TIMEOUT_S)
        assert caught.value.args[0].fatal()
        successor = producer_of(broker)
        begin_and_send(successor, "kept")
        successor.commit_transaction(TIMEOUT_S)
        assert committed(broker, 1) == ["kept"]


def test_the_clock_moves_for_all_and_timestamps_follow(broker: Broker) -> None:
    for _ in range(2):
        broker.advance_clock(1_800_000)
    with connect(broker.bootstrap_servers) as client:
        who = client.call(InitProducerIdRequest("t", 60_000, -1, -1), version=4)
        end = EndTxnRequest("t", who.producer_id, who.producer_epoch, True)
        assert client.call(end, version=4).error_code == errors.INVALID_TXN_STATE
    producer = producer_of(broker)
    begin_and_send(producer, "open for a minute")
    # The transaction began on the moved clock, so it has its whole minute from there on.
    broker.advance_clock(30_000)
    producer.produce("orders", "still open")
    assert producer.flush(TIMEOUT_S) == 0
    broker.advance_clock(40_000)
    with pytest.raises(KafkaException):
        producer.commit_transaction(TIMEOUT_S)
    assert "was open for" in broker.log
    with pytest.raises(OrderRefused, match="cannot go back"):
        broker.advance_clock(-1)


def test_a_restarted_broker_has_no_faults_and_does_not_crash_again(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker:
        fault = broker.faults.inject_error("InitProducerId", "NOT_COORDINATOR", times=None)
        broker.crash_at("txn.prepare.before", times=2)
        broker.restart()
        producer = producer_of(broker)
        for value in ("one", "two"):
            begin_and_send(producer, value)
            producer.commit_transaction(TIMEOUT_S)
        with pytest.raises(OrderRefused, match="a broker that is restarted forgets its faults"):
            _ = fault.hits


# --- mistakes ---------------------------------------------------------------------------------------------


def test_a_mistake_is_explained(broker: Broker) -> None:
    for mistake, problem, hint in (
        (lambda: broker.faults.drop_on("EndTx"), "'EndTx' is no API that Fencepost knows", "did you mean EndTxn?"),
        (
            lambda: broker.faults.inject_error("EndTxn", "FENCED"),
            "'FENCED' is no error that Fencepost knows",
            "did you mean PRODUCER_FENCED?",
        ),
        (lambda: broker.faults.inject_error("EndTxn", "NONE"), "NONE is no error", "name one"),
        (lambda: broker.faults.drop_on("EndTxn", times=0), "times=0 never happens", "1 or more"),
        (lambda: broker.faults.drop_on("EndTxn", at="response"), "'response' is no moment", "known are request, reply"),
        (lambda: broker.crash_at("txn.prepared"), "'txn.prepared' is no point", "did you mean txn.prepare."),
        (lambda: broker.time_out("orders-1"), "there is no transactional id 'orders-1'", "known are: none so far"),
    ):
        with pytest.raises(OrderRefused) as caught:
            mistake()
        said_problem, said_hint = str(caught.value).split("\n\nhint: ")
        assert said_problem.startswith(problem)
        assert said_hint.startswith(hint)
    producer_of(broker)
    with pytest.raises(OrderRefused, match="'orders-1' is Empty, only an open one can time out"):
        broker.time_out("orders-1")


# --- what librdkafka forgets ------------------------------------------------------------------------------


def abort(producer: Producer) -> None:
    """Call `abort_transaction` for as long as it says "retriable", as librdkafka's manual asks for.

    It first empties its queues and then waits for what is on its way. A request that fails in between puts its records
    back into a queue, and a transaction that is being aborted sends nothing: the call would wait for them until
    message.timeout.ms. The next call empties the queues again.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return producer.abort_transaction(1)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


def test_an_abort_that_waits_for_a_record_which_librdkafka_put_back_ends_with_the_next_call(broker: Broker) -> None:
    producer = producer_of(broker)
    begin_and_send(producer, "kept")
    producer.commit_transaction(TIMEOUT_S)
    producer.begin_transaction()
    unanswered = broker.faults.drop_on("Produce")
    producer.produce("orders", "aborted")
    unanswered.wait_for_hits()
    # The connection breaks while the abort waits for the record.
    cut = threading.Timer(0.2, unanswered.clear)
    cut.start()
    with pytest.raises(KafkaException, match=r"1 message\(s\) remaining") as caught:
        producer.abort_transaction(1)
    assert caught.value.args[0].retriable()
    cut.join()
    abort(producer)
    successor = producer_of(broker)
    begin_and_send(successor, "the end")
    successor.commit_transaction(TIMEOUT_S)
    assert committed(broker, 2) == ["kept", "the end"]


def test_an_abort_with_a_lost_reply_does_not_cost_the_records_of_the_next_transaction(broker: Broker) -> None:
    """librdkafka then gives the same sequences to other records. To say "stored already" would lose them silently."""
    producer = producer_of(broker, linger_ms=20)
    begin_and_send(producer, "the first of all")
    producer.commit_transaction(TIMEOUT_S)
    producer.begin_transaction()
    lost = broker.faults.disconnect_on("Produce")
    producer.produce("orders", "aborted")
    lost.wait_for_hits()
    abort(producer)
    expected = ["the first of all", "new", "the end"]
    producer.begin_transaction()
    try:
        producer.produce("orders", "new")
        producer.commit_transaction(TIMEOUT_S)
    except KafkaException:
        # It had no time to send the old records again. The error is true: the new records are not stored.
        expected.remove("new")
    last = producer_of(broker)  # The same id, which ends what is open.
    begin_and_send(last, "the end")
    last.commit_transaction(TIMEOUT_S)
    assert committed(broker, len(expected)) == expected
