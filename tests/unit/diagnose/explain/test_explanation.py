"""The findings about a transaction: what happened, why, which readers wait, what happens next, what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.groups import GroupOffset
from fencepost.diagnose.explain.explanation import Explanation, diagnose_txn
from fencepost.diagnose.explain.findings import Cause
from fencepost.diagnose.history import Abort
from fencepost.diagnose.snapshot import ClusterSettings, LogEntry, OpenTxn
from fencepost.machines.txn.states import TxnState
from fencepost.protocol import errors
from tests.unit.diagnose.snapshots import (
    GROUP_OFFSETS,
    NOW_MS,
    ORDERS,
    PAYMENTS,
    described,
    ends,
    entry,
    producer,
    rpc,
    txn_snapshot,
)

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, *_ = TxnState
SETTINGS = ClusterSettings(max_timeout_ms=900_000, abort_check_ms=10_000, expiration_ms=604_800_000)


def commands(explanation: Explanation) -> list[str]:
    return [action.command for action in explanation.actions if action.command is not None]


def advice(explanation: Explanation) -> str:
    return " ".join(action.advice for action in explanation.actions)


def test_an_open_transaction_that_pins_readers() -> None:
    explanation = diagnose_txn(
        txn_snapshot(
            described(),
            ends={ORDERS: ends(40, 90), PAYMENTS: ends(7, 8)},
            producers={ORDERS: (producer(40),), PAYMENTS: (producer(7, last_timestamp_ms=NOW_MS - 3000),)},
            settings=SETTINGS,
        )
    )
    assert explanation.paragraph == (
        "Transaction `orders-sink` is open (Ongoing) for 12 s, since 2027-01-15 07:59:48.000Z: producer 7 with epoch 4 "
        "has neither committed nor aborted it. It last wrote 3 s ago, to payments-3. It pins the last stable offset of "
        "orders-0 and payments-3: 51 offsets behind it cannot be read with read_committed. Unless its producer ends "
        "it, broker 1 aborts it in 48 s: its timeout is 1 m, and the coordinator checks timeouts every 10 s."
    )
    labels = [finding.label for finding in explanation.findings]
    assert labels == ["what happened", "last activity", "readers", "what happens next"]
    assert [(b.where, b.waiting) for b in explanation.blocks] == [(ORDERS, 50), (PAYMENTS, 1)]
    assert commands(explanation) == ["fencepost txn fence orders-sink"]


def test_it_does_not_block_where_another_began_before_it() -> None:
    older = producer(30, producer_id=3)
    explanation = diagnose_txn(
        txn_snapshot(
            described(partitions=(ORDERS,)),
            ends={ORDERS: ends(30, 90)},
            producers={ORDERS: (producer(40), older)},
        )
    )
    assert explanation.blocks == ()
    assert "No reader waits for it" in explanation.paragraph


def test_one_that_has_written_nothing_and_holds_offsets() -> None:
    explanation = diagnose_txn(txn_snapshot(described(partitions=(GROUP_OFFSETS,))))
    assert "nothing of it was open on its 1 partition: it has not written yet, or has ended" in explanation.paragraph
    assert "UNSTABLE_OFFSET_COMMIT" in explanation.paragraph


@pytest.mark.parametrize(
    ("open_ms", "timeout_ms", "said"),
    [
        (
            65_000,
            60_000,
            "Its timeout of 1 m has passed, and the coordinator checks timeouts every 10 s: it is about to be",
        ),
        (300_000, 60_000, "Its timeout of 1 m passed 4 m ago, but its coordinator, broker 1, has not aborted it"),
        (300_000, 2**31 - 1, "It has no timeout (two-phase commit): only its owner ends it."),
    ],
)
def test_a_timeout_that_has_passed(open_ms: int, timeout_ms: int, said: str) -> None:
    txn = described(start_ms=NOW_MS - open_ms, timeout_ms=timeout_ms)
    assert said in diagnose_txn(txn_snapshot(txn, settings=SETTINGS)).paragraph


def test_the_last_request_is_named_if_the_brokers_remember_it() -> None:
    explanation = diagnose_txn(txn_snapshot(described(), rpcs=(rpc("AddPartitionsToTxn", 9000), rpc())))
    assert (
        "The last request for it was Produce, 3 s ago from client `shop` at 10.0.0.9:40000, and was answered without "
        "an error."
    ) in explanation.paragraph
    refused = diagnose_txn(txn_snapshot(described(), rpcs=(rpc(error_code=errors.INVALID_PRODUCER_EPOCH),)))
    assert "and was answered with INVALID_PRODUCER_EPOCH." in refused.paragraph
    waiting = diagnose_txn(txn_snapshot(described(), rpcs=(rpc("EndTxn", client_id=None, duration_us=-1),)))
    assert "EndTxn, 3 s ago from a client at 10.0.0.9:40000, and is not answered yet." in waiting.paragraph
    assert "last request" not in diagnose_txn(txn_snapshot(described(), rpcs=())).paragraph


def test_an_id_with_special_characters_is_quoted_for_the_shell() -> None:
    txn = described(transactional_id="orders sink")
    assert commands(diagnose_txn(txn_snapshot(txn, transactional_id="orders sink"))) == [
        "fencepost txn fence 'orders sink'"
    ]


def test_a_decision_that_has_just_been_made_needs_patience() -> None:
    txn = described("PrepareCommit", partitions=(PAYMENTS,))
    explanation = diagnose_txn(txn_snapshot(txn, history=(entry(PREPARE_COMMIT, -40, start_ms=-12_000),)))
    assert "was decided 40 ms ago: it is going to be committed (PrepareCommit)" in explanation.paragraph
    assert advice(explanation) == "wait: markers take milliseconds"


def test_for_missing_markers_the_partitions_are_named() -> None:
    txn = described("PrepareAbort", partitions=(ORDERS, PAYMENTS))
    explanation = diagnose_txn(
        txn_snapshot(
            txn, history=(entry(PREPARE_ABORT, -60_000, start_ms=-72_000, epoch=4),), ends={ORDERS: ends(40, 90)}
        )
    )
    assert "still has to write markers on orders-0 and payments-3" in explanation.paragraph
    assert "so something prevents them" in explanation.paragraph
    assert "look at payments-3, whose leader did not answer" in advice(explanation)
    assert "do not fence it" in advice(explanation)
    assert commands(explanation) == []


def test_a_decision_of_unknown_age_is_not_called_stuck() -> None:
    """Apache Kafka answers EndTxn in this state; without the log, the time of the decision is not known."""
    explanation = diagnose_txn(txn_snapshot(described("PrepareCommit", partitions=(ORDERS,)), history=None))
    assert "so something prevents them" not in explanation.paragraph
    assert "If it is still in this state later" in explanation.paragraph
    assert "ask again in a few seconds" in advice(explanation)
    # The decision before this transaction is not its own.
    earlier = (entry(PREPARE_COMMIT, -90_000), entry(COMPLETE_COMMIT, -89_000), entry(ONGOING, -1_000))
    fencing = diagnose_txn(txn_snapshot(described("PrepareEpochFence", partitions=(ORDERS,)), history=earlier))
    assert "ask again in a few seconds" in advice(fencing)


def test_a_decision_whose_markers_were_written_meanwhile_leaves_nothing_to_do() -> None:
    """The log is read after the coordinator was asked."""
    explanation = diagnose_txn(
        txn_snapshot(
            described("PrepareCommit", partitions=(ORDERS,)),
            history=(entry(PREPARE_COMMIT, -9_000, start_ms=-12_000), entry(COMPLETE_COMMIT, -1, start_ms=-12_000)),
        )
    )
    assert "was decided 9 s ago" in explanation.paragraph
    assert "has written the markers in the meantime" in explanation.paragraph
    assert advice(explanation) == "there is nothing to do"


def closed(*history: LogEntry, state: str = "CompleteAbort") -> Explanation:
    return diagnose_txn(txn_snapshot(described(state, partitions=()), history=history, settings=SETTINGS))


def test_a_past_timeout_is_explained() -> None:
    explanation = closed(
        entry(ONGOING, -90_000),
        entry(PREPARE_ABORT, -25_000, epoch=5, start_ms=-90_000),
        entry(COMPLETE_ABORT, -24_900, epoch=5, start_ms=-90_000),
    )
    assert "its last transaction was aborted 25 s ago" in explanation.paragraph
    assert "after 1 m 5 s of a timeout of 1 m, was decided by its coordinator, because it" in explanation.paragraph
    assert "transaction.timeout.ms longer" in advice(explanation)
    assert commands(explanation) == ["fencepost txn history orders-sink"]


def test_a_past_takeover_is_explained() -> None:
    explanation = closed(
        entry(ONGOING, -9_000),
        entry(PREPARE_ABORT, -5_000, epoch=5, start_ms=-9_000),
        entry(COMPLETE_ABORT, -4_900, epoch=5, start_ms=-9_000),
        entry(EMPTY, -4_800, epoch=6),
        state="Empty",
    )
    assert "because a new producer registered the id" in explanation.paragraph
    assert "two processes use this transactional.id" in advice(explanation)


def test_the_order_of_an_operator_is_not_explained_as_a_second_process() -> None:
    explanation = closed(
        entry(ONGOING, -9_000),
        entry(PREPARE_ABORT, -5_000, epoch=5, start_ms=-9_000),
        entry(COMPLETE_ABORT, -4_900, epoch=5, start_ms=-9_000),
        entry(EMPTY, -4_800, epoch=6, timeout_ms=59_999),
        state="Empty",
    )
    assert explanation.cause is Cause.ABORTED_BY_ORDER
    assert "(Empty): an operator fenced its producer 4.8 s ago" in explanation.paragraph
    assert "was decided by an operator, who fenced its producer." in explanation.paragraph
    assert "a new producer" not in explanation.paragraph
    assert "two processes" not in advice(explanation)
    assert "has to be started again" in advice(explanation)
    idle = closed(entry(EMPTY, -9_000), entry(EMPTY, -4_800, epoch=5, timeout_ms=59_999), state="Empty")
    assert idle.cause is Cause.FENCED_BY_ORDER
    assert "has to be started again" in advice(idle)


def test_a_commit_leaves_nothing_to_do() -> None:
    explanation = closed(
        entry(ONGOING, -90_000),
        entry(PREPARE_ABORT, -25_000, epoch=5, start_ms=-90_000),
        entry(COMPLETE_ABORT, -24_900, epoch=5, start_ms=-90_000),
        entry(ONGOING, -10_000, epoch=6),
        entry(PREPARE_COMMIT, -9_000, epoch=6, start_ms=-10_000),
        entry(COMPLETE_COMMIT, -8_990, epoch=6, start_ms=-10_000),
        state="CompleteCommit",
    )
    assert "its last transaction was committed 9 s ago" in explanation.paragraph
    assert "abort" not in explanation.paragraph, "the earlier abort does not matter any more"
    assert advice(explanation) == "there is nothing to do"


def test_processes_that_fence_each_other_are_suspected() -> None:
    duel = [entry(EMPTY, -30_000 + 6_000 * n, epoch=n) for n in range(5)]
    explanation = closed(*duel, state="Empty")
    assert (
        "5 producers registered the id within 24 s, the last one 6 s ago: probably two processes"
        in explanation.paragraph
    )
    restarts = [entry(EMPTY, -3_600_000 * n, epoch=5 - n) for n in range(5, 0, -1)]
    assert "producers registered the id" not in closed(*restarts, state="Empty").paragraph


def test_in_a_duel_the_first_advice_is_to_stop_one_of_the_clients_and_names_both() -> None:
    duel = (*(entry(EMPTY, -30_000 + 6_000 * n, epoch=n) for n in range(5)), entry(ONGOING, -1_000, epoch=5))
    registered = [
        rpc("InitProducerId", 4_000, client_id="blue", port=40_001),
        rpc("InitProducerId", 3_000, client_id="green", host="10.0.0.8", port=40_002),
        rpc("InitProducerId", 2_000, client_id="blue", port=40_003),
        rpc("Produce", 1_000, client_id="other"),
    ]
    explanation = diagnose_txn(txn_snapshot(described(), history=duel, rpcs=tuple(registered)))
    first, *_ = explanation.actions
    assert first.advice == (
        "leave the id to one of these clients and stop the other, or give each its own transactional.id: "
        "client `blue` at 10.0.0.9, ports 40003 and 40001; client `green` at 10.0.0.8, port 40002"
    )
    assert explanation.causes == (Cause.DUEL, Cause.OPEN)
    # Two copies of one service on one machine differ in nothing but their ports; Apache Kafka remembers no requests.
    alone = diagnose_txn(txn_snapshot(described(), history=duel, rpcs=tuple(registered[:1])))
    assert "look at client `blue` at 10.0.0.9, port 40001" in alone.actions[0].advice
    apache = diagnose_txn(txn_snapshot(described(), history=duel))
    assert apache.actions[0].advice.startswith("find the processes that use this transactional.id")
    assert "PRODUCER_FENCED or INVALID_PRODUCER_EPOCH in its own log" in apache.actions[0].advice
    assert "INIT_PRODUCER_ID" in apache.actions[1].advice
    tool = (
        'kafka-configs --bootstrap-server "$FENCEPOST_BOOTSTRAP" --entity-type broker-loggers --entity-name 1 --alter'
    )
    assert commands(apache)[:2] == [f"{tool} --add-config kafka.request.logger={level}" for level in ("DEBUG", "WARN")]
    # Our brokers remember requests; after a restart they have none to show.
    assert "remember" not in diagnose_txn(txn_snapshot(described(), history=duel, rpcs=())).actions[0].advice


@pytest.mark.parametrize(
    ("explanation", "cause", "deadline_ms"),
    [
        (diagnose_txn(txn_snapshot(described())), Cause.OPEN, NOW_MS + 48_000),
        (diagnose_txn(txn_snapshot(described(start_ms=NOW_MS - 300_000))), Cause.OVERDUE, NOW_MS - 240_000),
        (diagnose_txn(txn_snapshot(described(timeout_ms=2**31 - 1))), Cause.OPEN, None),
        (diagnose_txn(txn_snapshot(described("PrepareCommit"))), Cause.MARKERS_UNDER_WAY, None),
        (
            diagnose_txn(txn_snapshot(described("PrepareAbort"), history=(entry(PREPARE_ABORT, -60_000),))),
            Cause.MARKERS_MISSING,
            None,
        ),
        (diagnose_txn(txn_snapshot(described("CompleteCommit", partitions=()))), Cause.COMMITTED, None),
        (diagnose_txn(txn_snapshot(described("CompleteAbort", partitions=()))), Cause.ABORTED, None),
        (diagnose_txn(txn_snapshot(described("Empty", partitions=(), start_ms=-1))), Cause.REGISTERED, None),
        (diagnose_txn(txn_snapshot(None)), Cause.UNKNOWN_ID, None),
    ],
    ids=lambda value: value.name if isinstance(value, Cause) else "",
)
def test_an_explanation_has_a_code_and_a_deadline_for_programs(
    explanation: Explanation, cause: Cause, deadline_ms: int | None
) -> None:
    assert (explanation.cause, explanation.deadline_ms) == (cause, deadline_ms)


def test_every_abort_has_its_code() -> None:
    assert {f"ABORTED_BY_{why.name}" for why in Abort} <= {cause.name for cause in Cause}


def test_the_last_request_and_the_groups_that_wait_are_fields() -> None:
    explanation = diagnose_txn(
        txn_snapshot(
            described(partitions=(ORDERS,)),
            ends={ORDERS: ends(40, 90)},
            producers={ORDERS: (producer(40),)},
            rpcs=(rpc("AddPartitionsToTxn", 9000), rpc()),
            groups={"billing": {ORDERS: GroupOffset(40, False)}, "uncommitted": {ORDERS: GroupOffset(80, False)}},
        )
    )
    assert explanation.last_request is not None
    assert (explanation.last_request.name, explanation.last_request.client_id) == ("Produce", "shop")
    assert [(g.group_id, g.lag_to_high_watermark) for g in explanation.affected_groups] == [("billing", 50)]
    assert "`billing`: orders-0 (lag 0 to the last stable offset, 50 to the high watermark)" in explanation.paragraph


def test_a_sink_that_registers_before_each_micro_batch_is_not_suspected() -> None:
    """As our sink does with TV1."""
    batches = [
        entry(state, -30_000 + 1_000 * n + step, epoch=n)
        for n in range(6)
        for step, state in enumerate((EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT))
    ]
    explanation = closed(*batches, state="CompleteCommit")
    assert "producers registered the id" not in explanation.paragraph
    assert advice(explanation) == "there is nothing to do"
    # Two producers that abort each other's transactions are.
    duel = [
        entry(state, -30_000 + 1_000 * n + step, epoch=n)
        for n in range(6)
        for step, state in enumerate((EMPTY, ONGOING, PREPARE_ABORT, COMPLETE_ABORT))
    ]
    assert "6 producers registered the id within 5 s," in closed(*duel, state="CompleteAbort").paragraph


def test_beside_a_hanging_transaction_nothing_is_called_well() -> None:
    snapshot = txn_snapshot(
        described("CompleteCommit", partitions=(), start_ms=-1),
        history=(entry(ONGOING, -9000), entry(COMPLETE_COMMIT, -8000)),
        ends={ORDERS: ends(40, 90)},
        producers={ORDERS: (producer(40),)},
    )
    explanation = diagnose_txn(snapshot)
    assert "A transaction of this id hangs on orders-0" in explanation.paragraph
    assert "50 offsets behind it cannot be read" in explanation.paragraph
    assert "blocks no reader" not in explanation.paragraph
    assert commands(explanation) == ["fencepost txn abort --topic orders --partition 0 --producer-id 7"]
    assert explanation.cause is Cause.HANGING


def test_if_a_broker_did_not_answer_the_all_clear_is_limited() -> None:
    snapshot = txn_snapshot(
        described("CompleteCommit", partitions=()),
        history=(entry(COMPLETE_COMMIT, -9_000),),
        problems=("the producers of orders-0 are unknown",),
    )
    explanation = diagnose_txn(snapshot)
    assert explanation.paragraph.endswith("It blocks no reader, as far as the cluster answered.")
    assert advice(explanation) == "there is nothing to do, as far as the cluster answered"


def test_a_leftover_of_an_earlier_transaction_hangs() -> None:
    snapshot = txn_snapshot(
        described("CompleteCommit", partitions=()),
        history=(entry(COMPLETE_COMMIT, -9_000),),
        producers={ORDERS: (producer(40),), NamedPartition("audit", 0): (producer(3, producer_id=99),)},
    )
    explanation = diagnose_txn(snapshot)
    assert "hangs on orders-0 (producer 7, from offset 40)" in explanation.paragraph
    assert "audit" not in explanation.paragraph, "it belongs to another producer"
    assert [h.abort_command for h in explanation.hanging] == commands(explanation)


def test_a_transaction_hangs_on_a_partition_that_the_history_does_not_name() -> None:
    """Compaction has left one record of the id, which names no partition; an older producer id is in it, too."""
    audit = NamedPartition("audit", 0)
    snapshot = txn_snapshot(
        described("Empty", partitions=(), start_ms=-1),
        history=(entry(EMPTY, -9_000, previous_producer_id=5),),
        ends={ORDERS: ends(40, 90), audit: ends(3, 5), PAYMENTS: ends(7, 8)},
        producers={
            ORDERS: (producer(40, producer_id=99),),
            audit: (producer(3, producer_id=5),),
            PAYMENTS: (producer(7),),
        },
    )
    explanation = diagnose_txn(snapshot)
    assert [(h.where, h.producer_id) for h in explanation.hanging] == [(audit, 5), (PAYMENTS, 7)]
    assert [(b.where, b.waiting, b.is_hanging) for b in explanation.blocks] == [(audit, 2, True), (PAYMENTS, 1, True)]
    assert "3 offsets behind it cannot be read" in explanation.paragraph


def test_what_an_earlier_producer_left_hangs_also_where_the_open_transaction_writes() -> None:
    snapshot = txn_snapshot(
        described(partitions=(ORDERS,)),
        history=(entry(EMPTY, -90_000, producer_id=5), entry(ONGOING, -12_000)),
        ends={ORDERS: ends(40, 90)},
        producers={ORDERS: (producer(40, producer_id=5), producer(60))},
    )
    explanation = diagnose_txn(snapshot)
    [hanging] = explanation.hanging
    assert (hanging.producer_id, hanging.why) == (5, "the open transaction of `orders-sink` is of producer 7")
    assert explanation.causes == (Cause.HANGING, Cause.OPEN)
    assert "from offset 40" in explanation.paragraph
    assert "It pins" not in explanation.paragraph, "readers wait for what hangs"


def test_beside_an_open_transaction_a_hanging_one_is_told_apart() -> None:
    snapshot = txn_snapshot(
        described(partitions=(ORDERS,)),
        ends={ORDERS: ends(40, 90), PAYMENTS: ends(7, 8)},
        producers={ORDERS: (producer(40),), PAYMENTS: (producer(7),)},
    )
    explanation = diagnose_txn(snapshot)
    assert explanation.causes == (Cause.HANGING, Cause.OPEN)
    assert "It pins the last stable offset of orders-0: 50 offsets behind it" in explanation.paragraph
    assert commands(explanation) == [
        "fencepost txn abort --topic payments --partition 3 --producer-id 7",
        "fencepost txn fence orders-sink",
    ]


def test_an_unknown_id_may_have_left_what_hangs_under_an_unknown_producer_id() -> None:
    explanation = diagnose_txn(txn_snapshot(None, nameless=(OpenTxn(ORDERS, 12, 0, 40),)))
    assert "Transactions hang on orders-0 (producer 12)" in explanation.paragraph
    assert explanation.causes == (Cause.UNKNOWN_ID, Cause.HANGING_NAMELESS)
    assert commands(explanation)[0] == "fencepost txn hanging"


def test_what_hangs_under_no_known_id_takes_the_all_clear_from_an_id_that_is_closed() -> None:
    """An earlier producer of the id may have left it, whose records are too old to be read."""
    explanation = diagnose_txn(txn_snapshot(described("CompleteCommit"), nameless=(OpenTxn(ORDERS, 0, 0, 40),)))
    assert "Transactions hang on orders-0 (producer 0)" in explanation.paragraph
    assert "may be of an earlier producer of this id" in explanation.paragraph
    assert "blocks no reader" not in explanation.paragraph
    assert "nothing to do" not in advice(explanation)
    assert commands(explanation) == ["fencepost txn hanging"]
    assert explanation.causes == (Cause.HANGING_NAMELESS, Cause.COMMITTED)
    assert diagnose_txn(txn_snapshot(described(), nameless=(OpenTxn(ORDERS, 0, 0, 40),))).cause is Cause.OPEN


def test_what_hangs_under_no_known_id_takes_the_all_clear_from_an_id_that_has_just_completed() -> None:
    history = (entry(PREPARE_COMMIT, -40, start_ms=-12_000), entry(COMPLETE_COMMIT, -5))
    just_completed = txn_snapshot(described("PrepareCommit"), history=history)
    assert advice(diagnose_txn(just_completed)) == "there is nothing to do"
    explanation = diagnose_txn(replace(just_completed, nameless=(OpenTxn(ORDERS, 0, 0, 40),)))
    assert advice(explanation) == "see what hangs, and how to end it"


def test_an_id_that_has_expired_may_have_left_a_transaction_that_hangs() -> None:
    """Its last records in the log still have its producer id."""
    explanation = diagnose_txn(
        txn_snapshot(
            None,
            history=(entry(EMPTY, -9_000), LogEntry(offset=9, timestamp_ms=NOW_MS - 1000, txn=None)),
            ends={ORDERS: ends(40, 90)},
            producers={ORDERS: (producer(40),)},
        )
    )
    assert explanation.causes == (Cause.HANGING, Cause.EXPIRED)
    assert [finding.label for finding in explanation.findings] == ["hanging", "what happened", "why"]
    assert commands(explanation) == [
        "fencepost txn abort --topic orders --partition 0 --producer-id 7",
        "fencepost txn list",
    ]


def test_an_unknown_id_is_explained_with_similar_ids() -> None:
    explanation = diagnose_txn(txn_snapshot(None, similar=("orders-sink-3",), settings=SETTINGS))
    assert explanation.state is None
    assert "it was not used for 7 d and has expired" in explanation.paragraph
    assert commands(explanation) == ["fencepost txn explain orders-sink-3", "fencepost txn list"]
    tombstone = LogEntry(offset=9, timestamp_ms=NOW_MS - 1000, txn=None)
    forgotten = diagnose_txn(txn_snapshot(None, history=(tombstone,)))
    assert "The id was removed at 2027-01-15 07:59:59.000Z" in forgotten.paragraph
