"""`fencepost topic` on Fencepost and on Apache Kafka, with the same answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import AdminClient

from tests.e2e.operating.conftest import Run
from tests.readers.reading import TIMEOUT_S

Unique = Callable[[str], str]


def test_a_topic_is_created_listed_described_and_deleted(run: Run, unique: Unique) -> None:
    name = unique("topic")
    made = run("topic", "create", name, "--partitions", "3", "--config", "cleanup.policy=compact", "--json")
    assert made.exit_code == 0
    assert made.document["topics"] == [
        {"topic": name, "result": "created", "partition_count": 3, "replication_factor": 1, "problem": None}
    ]

    rows = {row["topic"]: row for row in run("topic", "list", "--json").document["topics"]}
    assert rows[name] == {
        "topic": name,
        "partition_count": 3,
        "replication_factor": 1,
        "is_internal": False,
        "leaderless_count": 0,
        "under_replicated_count": 0,
    }

    shown = run("topic", "describe", name, "--json").document
    assert shown["settings"] == [{"name": "cleanup.policy", "value": "compact", "is_own": True}]
    leaders = {row["leader"] for row in shown["partitions"]}
    assert [(row["partition"], row["replicas"], row["in_sync"]) for row in shown["partitions"]] == [
        (number, [*leaders], [*leaders]) for number in range(3)
    ]

    assert run("topic", "delete", name, "--yes").out == f"{name}: deleted\n"
    assert name not in {row["topic"] for row in run("topic", "list", "--json").document["topics"]}


def test_the_topic_id_is_written_as_kafka_writes_it(run: Run, servers: str, unique: Unique) -> None:
    name = unique("topic")
    run("topic", "create", name)
    admin = AdminClient({"bootstrap.servers": servers})
    [described] = admin.describe_topics(TopicCollection([name])).values()
    # librdkafka prints the same id with the two signs that Java's Uuid avoids.
    expected = str(described.result(TIMEOUT_S).topic_id).translate(str.maketrans("+/", "-_"))
    assert run("topic", "describe", name, "--json").document["topic_id"] == expected


def test_describe_shows_how_far_each_kind_of_reader_gets(run: Run, servers: str, unique: Unique) -> None:
    name = unique("topic")
    run("topic", "create", name, "--partitions", "2")
    producer = Producer({"bootstrap.servers": servers, "transactional.id": unique("open"), "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for _ in range(2):
        producer.produce(name, b"waits", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    rows = run("topic", "describe", name, "--json").document["partitions"]
    offsets = [(row["log_start_offset"], row["last_stable_offset"], row["high_watermark"]) for row in rows]
    assert offsets == [(0, 0, 2), (0, 0, 0)]
    text = run("topic", "describe", name).out
    assert "LOG START" in text
    assert "HIGH WATERMARK" in text
    producer.abort_transaction(TIMEOUT_S)


def test_a_topic_that_exists_is_refused_with_a_hint_and_accepted_on_request(run: Run, unique: Unique) -> None:
    name = unique("topic")
    run("topic", "create", name, "--partitions", "2")
    again = run("topic", "create", name)
    assert again.exit_code == 1
    assert again.err.startswith(f"error: creating topic {name}: TOPIC_ALREADY_EXISTS (36)")
    assert f"hint: `fencepost topic describe {name}` shows it; --if-not-exists accepts it" in again.err
    accepted = run("topic", "create", name, "--if-not-exists", "--partitions", "9")
    assert (accepted.exit_code, accepted.out) == (0, f"{name}: exists already, unchanged\n")
    assert accepted.err == f"warning: {name} exists with partition count 2, not 9\n"
    assert run("topic", "create", name, "--if-not-exists", "--partitions", "2").err == ""
    assert len(run("topic", "describe", name, "--json").document["partitions"]) == 2


def test_every_topic_of_an_order_is_reported_although_one_is_refused(run: Run, unique: Unique) -> None:
    first, second, third = unique("topic"), unique("topic"), unique("topic")
    run("topic", "create", second)
    made = run("topic", "create", first, second, third, "--partitions", "1", "--json")
    assert made.exit_code == 1
    results = [(change["topic"], change["result"]) for change in made.document["topics"]]
    assert results == [(first, "created"), (second, "refused"), (third, "created")]
    assert made.err.startswith(f"error: creating topic {second}: TOPIC_ALREADY_EXISTS (36)")
    fourth = unique("topic")
    again = run("topic", "create", first, fourth)
    assert again.out.startswith(f"{first}: refused: creating topic {first}: TOPIC_ALREADY_EXISTS (36)")
    assert f"\n{fourth}: created with " in again.out


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["a b"], "INVALID_TOPIC_EXCEPTION (17)", "a name has 1 to 249 letters"),
        (["t", "--replication-factor", "3"], "INVALID_REPLICATION_FACTOR (38)", "the cluster has 1 broker,"),
        (["t", "--partitions", "99999999"], "POLICY_VIOLATION (44)", "a request may create 10000 partitions"),
        (["t", "--config", "retention.ms=soon"], "INVALID_CONFIG (40)", "--all-settings` shows the settings"),
        (["t", "--config", "no.such.setting=1"], "INVALID_CONFIG (40)", "--all-settings` shows the settings"),
    ],
    ids=["name", "replication", "partitions", "value", "setting"],
)
def test_a_refused_topic_has_the_error_and_a_hint(run: Run, arguments: list[str], error: str, hint: str) -> None:
    refused = run("topic", "create", *arguments)
    assert refused.exit_code == 1
    assert error in refused.err
    assert hint in refused.err


def test_an_unknown_topic_is_named_with_the_one_that_was_meant(run: Run, unique: Unique) -> None:
    name = unique("payments-of-the-day")
    run("topic", "create", name)
    for command in ("describe", "delete"):
        unknown = run("topic", command, f"{name}x")
        assert unknown.exit_code == 1
        assert unknown.err.splitlines()[0] == f"error: topic {name}x does not exist"
        assert f"hint: did you mean {name}?" in unknown.err
    assert run("topic", "delete", f"{name}x", "--if-exists").out == f"{name}x: does not exist\n"


def test_a_topic_is_not_deleted_without_confirmation(run: Run, unique: Unique) -> None:
    name = unique("topic")
    run("topic", "create", name, "--partitions", "2")
    asked = run("topic", "delete", name)
    assert asked.exit_code == 2
    assert f"This deletes {name} (2 partitions) and all records in them." in asked.err
    assert run("topic", "describe", name).exit_code == 0


def test_internal_topics_are_shown_on_request(run: Run, servers: str, unique: Unique) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": unique("any"), "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    assert "__transaction_state" not in run("topic", "list").out
    assert "__transaction_state" in run("topic", "list", "--internal").out


def test_more_partitions_than_a_number_can_be_is_a_wrong_call(run: Run) -> None:
    wrong = run("topic", "create", "t", "--partitions", "9999999999")
    assert wrong.exit_code == 2
    assert "is not in the range 1<=x<=2147483647" in wrong.err


def test_a_wrong_setting_is_a_wrong_call(run: Run) -> None:
    wrong = run("topic", "create", "t", "--config", "nonsense")
    assert wrong.exit_code == 2
    assert "--config nonsense is not a setting" in wrong.err
