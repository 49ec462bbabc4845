"""A hanging transaction from first alarm to cure, and the groups that wait for it: on our broker and on Apache Kafka.

It is open on a partition that neither the coordinator nor `__transaction_state` names, so that only a search of the
cluster finds it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from fencepost.testing import Broker
from tests.examples import hang, hang_offset
from tests.readers.reading import TIMEOUT_S, read_all
from tests.txn_tools import BOTH, SETTINGS, Run, cluster, commit_offsets, create_topic, producer_of, runner, write


@pytest.fixture(scope="module", params=BOTH)
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    with cluster(request.param) as servers:
        yield servers


@pytest.fixture
def run(servers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(servers, capsys, monkeypatch)


@pytest.fixture
def topic(servers: str, unique: Callable[[str], str]) -> str:
    return create_topic(servers, unique("audit"))


def test_the_commands_lead_from_the_alarm_to_the_cure(
    servers: str, run: Run, topic: str, unique: Callable[[str], str]
) -> None:
    transactional_id, group = unique("auditor"), unique("billing")
    producer_id, offset = hang(servers, topic, transactional_id)
    commit_offsets(servers, group, {(topic, 0): 0})
    cure = f"fencepost txn abort --topic {topic} --partition 0 --producer-id {producer_id}"

    alarm = run("txn", "lso", topic, "--max-age", "1ms")
    assert alarm.exit_code == 1
    assert cure in alarm.err, "the alarm names the command that helps"
    assert cure in alarm.out
    [pin] = run("txn", "lso", topic, "--json").document["pins"]
    assert (pin["transactional_id"], pin["is_orphan"], pin["commands"]) == (transactional_id, True, [cure])

    explained = run("txn", "explain", transactional_id)
    assert explained.exit_code == 1, "this is no all-clear"
    assert f"hangs on {topic}-0 (producer {producer_id}, from offset {offset})" in explained.out
    assert "blocks no reader" not in explained.out
    assert "nothing to do" not in explained.out
    assert cure in explained.out
    document = run("txn", "explain", transactional_id, "--json").document
    assert (document["cause"], document["state"]) == ("hanging", "Empty")
    assert [(g["group_id"], g["lag_to_lso"], g["lag_to_high_watermark"]) for g in document["affected_groups"]] == [
        (group, 0, 1)
    ]
    assert sum(block["waiting"] for block in document["blocks"]) == pin["waiting"]

    fenced = run("txn", "fence", transactional_id, "--yes")
    assert fenced.exit_code == 1, "it is fenced, and readers are still stuck"
    assert "is fenced" in fenced.out
    assert f"readers of {topic}-0 stay stuck" in fenced.err
    assert cure in fenced.err
    refused = run("txn", "abort", transactional_id, "--yes")
    assert refused.exit_code == 1
    assert cure in refused.err
    assert run("txn", "explain", transactional_id, "--json").document["cause"] == "hanging"

    assert run(*cure.split()[1:], "--yes").exit_code == 0
    assert run("txn", "lso", topic, "--max-age", "1ms").exit_code == 0
    cured = run("txn", "explain", transactional_id, "--json")
    assert (cured.exit_code, cured.document["cause"], cured.document["hanging"]) == (0, "fenced_by_order", [])
    assert read_all(servers, [topic]) == []


def test_before_it_fences_it_says_that_this_does_not_help(
    servers: str, run: Run, topic: str, unique: Callable[[str], str]
) -> None:
    transactional_id = unique("auditor")
    producer_id, _ = hang(servers, topic, transactional_id)
    asked = run("txn", "fence", transactional_id)
    assert asked.exit_code == 2, "there is no terminal to confirm it"
    assert f"readers of {topic}-0 stay stuck" in asked.err
    arguments = ["--topic", topic, "--partition", "0", "--producer-id", str(producer_id)]
    assert run("txn", "abort", *arguments, "--yes").exit_code == 0


def test_an_open_transaction_and_its_groups_are_counted_alike_by_lso_and_explain(
    servers: str, run: Run, topic: str, unique: Callable[[str], str]
) -> None:
    """Also with offsets in the transaction, whose partition of `__consumer_offsets` no consumer reads."""
    transactional_id, reader, own = unique("processor"), unique("billing"), unique("processors")
    producer = producer_of(servers, transactional_id)
    commit_offsets(servers, reader, {(topic, 0): 0, (topic, 1): 5})
    write(producer, topic, "half an order")
    consumer = Consumer({"bootstrap.servers": servers, "group.id": own, "log_level": 0})
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(topic, 1, 1)], metadata, TIMEOUT_S)
    consumer.close()

    listed = run("txn", "lso", "--json").document
    [pin] = [pin for pin in listed["pins"] if pin["transactional_id"] == transactional_id]
    explained = run("txn", "explain", transactional_id, "--json").document
    blocked = {(b["topic"], b["partition"]): b["waiting"] for b in explained["blocks"]}
    assert {topic, "__consumer_offsets"} == {name for name, _ in blocked}
    rows = {(row["topic"], row["partition"]): row["waiting"] for row in listed["partitions"]}
    assert blocked.items() <= rows.items()
    assert pin["waiting"] == 2
    assert "2 offsets behind it cannot be read with read_committed" in run("txn", "explain", transactional_id).out
    assert f"2 offsets on {topic}-0" in run("txn", "lso", topic).out

    groups = {group["group_id"]: group["partitions"] for group in explained["affected_groups"]}
    assert groups == {group["group_id"]: group["partitions"] for group in listed["groups"]}
    [behind] = groups[reader]
    assert (behind["partition"], behind["committed_offset"], behind["lag_to_high_watermark"]) == (0, 0, 1), (
        "on the other partition it has read uncommitted records, and waits for no transaction"
    )
    in_list = {row["group_id"]: row["pending_count"] for row in run("group", "list", "--json").document["groups"]}
    assert (in_list[own], in_list[reader]) == (1, 0)
    [pending] = groups[own]
    assert (pending["partition"], pending["committed_offset"], pending["is_pending"]) == (1, None, True)
    assert explained["cause"] == "open"
    assert explained["deadline_ms"] > explained["now_ms"]
    assert run("txn", "abort", transactional_id, "--yes").exit_code == 0


# --- consumer groups --------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_waits_is_shown_with_its_member_its_lags_and_what_it_waits_for(
    servers: str, run: Run, topic: str, unique: Callable[[str], str], protocol: str
) -> None:
    transactional_id, group_id = unique("stuck"), unique("billing")
    producer = producer_of(servers, transactional_id)
    write(producer, topic, "read", partitions=(0,))
    producer.commit_transaction(TIMEOUT_S)
    settings = {"bootstrap.servers": servers, "group.id": group_id, "client.id": "reader", "log_level": 0}
    settings |= {"group.protocol": protocol, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        consumer.commit(asynchronous=False)
        write(producer, topic, "half an order", partitions=(0,))

        described = run("group", "describe", group_id, "--json").document
        assert (described["state"], described["protocol"]) == ("Stable", protocol)
        [member] = described["members"]
        assert (member["client_id"], member["host"]) == ("reader", "127.0.0.1")
        assert member["partitions"] == [{"topic": topic, "partition": n} for n in (0, 1)]
        here, there = described["partitions"]
        assert (here["committed_offset"], here["last_stable_offset"], here["high_watermark"]) == (1, 2, 3)
        assert (here["lag_to_lso"], here["lag_to_high_watermark"], here["is_waiting"]) == (1, 2, True)
        assert here["waits_for"]["transactional_id"] == transactional_id
        assert here["member_id"] == member["member_id"]
        assert (there["committed_offset"], there["is_waiting"], there["waits_for"]) == (None, False, None)
        shown = run("group", "describe", group_id).out
        assert f"{topic}-0 1 2 3 1 2 no {transactional_id}" in shown
        # A small lag to the LSO looks as if all were well, so the text says what it means, and what to call next.
        assert f"1 offset on {topic}-0 waits for `{transactional_id}` (producer " in shown
        assert shown.endswith(f": fencepost txn explain {transactional_id}")

        listed = {row["group_id"]: row for row in run("group", "list", "--waiting", "--json").document["groups"]}
        assert (listed[group_id]["waiting_count"], listed[group_id]["lag_to_high_watermark"]) == (1, 2)
        assert run("txn", "fence", transactional_id, "--yes").exit_code == 0
        listed = {row["group_id"]: row for row in run("group", "list", "--json").document["groups"]}
        assert listed[group_id]["waiting_count"] == 0
    finally:
        consumer.close()


def test_groups_with_notes_of_the_spark_sink_are_left_out_where_groups_wait_or_are_listed(
    servers: str, run: Run, topic: str, unique: Callable[[str], str]
) -> None:
    transactional_id, reader = unique("refunds"), unique("readers")
    producer = producer_of(servers, transactional_id)
    notes = [f"fencepost-marker-{transactional_id}", f"fencepost-token-{transactional_id}:2026-11-18"]
    before = run("group", "list", "--json").document["left_out"]
    for group_id in (reader, *notes):
        commit_offsets(servers, group_id, {(topic, 0): 0})
    write(producer, topic, "half an order", partitions=(0,))

    listed = run("group", "list", "--json").document
    found = {row["group_id"] for row in listed["groups"]}
    assert (reader in found, found & {*notes}, listed["left_out"] - before) == (True, set(), 2)
    assert f"{before + 2} groups with notes of the Spark sink left out; --all lists them" in run("group", "list").out
    every = run("group", "list", "--all", "--json").document
    assert {row["group_id"] for row in every["groups"]} >= {reader, *notes}
    assert every["left_out"] == 0
    assert [group["group_id"] for group in run("txn", "lso", topic, "--json").document["groups"]] == [reader]
    assert run("txn", "fence", transactional_id, "--yes").exit_code == 0


def test_a_group_that_cannot_start_because_its_offset_hangs_is_named_with_the_cure(
    servers: str, run: Run, topic: str, unique: Callable[[str], str]
) -> None:
    transactional_id, group_id = unique("processor"), unique("processors")
    producer_id = hang_offset(servers, group_id, topic, transactional_id)
    described = run("group", "describe", group_id, "--json").document
    held_by = described["offsets_wait_for"]
    assert (held_by["transactional_id"], held_by["is_orphan"]) == (transactional_id, True)
    [cure] = held_by["commands"]
    assert cure.startswith("fencepost txn abort --topic __consumer_offsets --partition ")
    assert cure.endswith(f" --producer-id {producer_id}")
    shown = run("group", "describe", group_id).out
    assert "A new member cannot start (UNSTABLE_OFFSET_COMMIT)" in shown
    assert cure in shown

    listed = {row["group_id"]: row for row in run("group", "list", "--waiting", "--json").document["groups"]}
    assert listed[group_id]["pending_count"] == 1
    explained = run("txn", "explain", transactional_id)
    assert "no new member of the group can start" in explained.out
    assert "0 offsets behind" not in explained.out
    assert f"`{group_id}`: {topic}-0 (an offset in a transaction; no committed offset)" in explained.out
    findings = run("doctor", "--json").document["findings"]
    [stuck] = [f for f in findings if f["check"] == "group-cannot-start" and f["groups"] == [group_id]]
    assert stuck["command"] == f"fencepost group describe {group_id}"

    assert run(*cure.split()[1:], "--yes").exit_code == 0
    well = run("group", "describe", group_id, "--json")
    assert well.exit_code == 1 or well.document["offsets_wait_for"] is None, "a group without offsets may be gone"


def test_a_group_that_does_not_exist_is_not_created(
    servers: str, run: Run, topic: str, unique: Callable[[str], str]
) -> None:
    group_id = unique("billing")
    commit_offsets(servers, group_id, {(topic, 0): 0})
    missing = run("group", "describe", f"{group_id}x")
    assert missing.exit_code == 1
    assert f"there is no consumer group {group_id}x" in missing.err
    assert f"did you mean {group_id}?" in missing.err
    assert f"{group_id}x" not in run("group", "list").out


def test_what_hangs_from_before_the_id_expired_is_told_apart_from_its_open_transaction(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are open on the same partition, under two producer ids."""
    expiring = {
        "transactional.id.expiration.ms": "1000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    }
    with Broker(settings=SETTINGS | expiring) as broker:
        run = runner(broker.bootstrap_servers, capsys, monkeypatch)
        topic = create_topic(broker.bootstrap_servers, "audit")
        before, _ = hang(broker.bootstrap_servers, topic, "auditor")
        deadline = time.monotonic() + TIMEOUT_S
        while run("txn", "list", "--json").document["transactions"]:
            assert time.monotonic() < deadline
        producer = producer_of(broker.bootstrap_servers, "auditor")
        write(producer, topic, "half an entry")

        cure = f"fencepost txn abort --topic {topic} --partition 0 --producer-id {before}"
        for shown in (run("txn", "explain", "auditor"), run("txn", "fence", "auditor", "--yes")):
            assert shown.exit_code == 1
            assert cure in shown.out + shown.err
        assert run(*cure.split()[1:], "--yes").exit_code == 0
        assert run("txn", "explain", "auditor").exit_code == 0
