"""`fencepost doctor` on Fencepost and on Apache Kafka: the same troubles, the same findings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from fencepost.client.admin.offsets import commit_offsets
from fencepost.client.client import KafkaClient
from fencepost.commands import alter_config
from fencepost.diagnose.collect.doctor import collect_doctor
from fencepost.diagnose.doctor.cluster import ALL_BROKERS, STATE_TOPIC
from fencepost.diagnose.doctor.report import diagnose_doctor
from fencepost.protocol import errors
from fencepost.protocol.messages import IncrementalAlterConfigsRequest
from fencepost.testing import Broker
from tests.e2e.operating.conftest import KINDS, Result, Run
from tests.engines.apache_kafka import run_line
from tests.examples import hang
from tests.readers.reading import TIMEOUT_S
from tests.txn_tools import cluster

# These tests look at whole clusters, so they need their own.
SETTINGS = {
    "transaction.partition.verification.enable": "false",
    # No transaction is aborted by its timeout.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
}
# Of __transaction_state.
BAD_SETTINGS = ("delete.retention.ms=1000", "cleanup.policy=[compact,delete]", "unclean.leader.election.enable=true")
# In the words of IncrementalAlterConfigs: a resource, and an operation.
BROKER, SET = 4, 0
POD = "billing-7d4b9c6f5d-x2k8p"
UUID = "3f2b8f0e-5a0f-4b62-9d0e-0c9f2d3f4a11"
_DURATION = re.compile(r"\b\d+(\.\d+)? (ms|s)\b")


@pytest.fixture(scope="module", params=KINDS)
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    with cluster(request.param, SETTINGS) as bootstrap_servers:
        yield bootstrap_servers


def register(servers: str, transactional_id: str) -> Producer:
    settings: dict[str, Any] = {"bootstrap.servers": servers, "transactional.id": transactional_id, "log_level": 0}
    producer = Producer(settings | {"transaction.timeout.ms": 600_000})
    producer.init_transactions(TIMEOUT_S)
    return producer


def findings(result: Result, severity: str | None = None) -> list[tuple[str, str, str | None]]:
    """Each finding as its check, its summary without times, and its command."""
    return [
        (found["check"], _DURATION.sub("TIME", found["summary"]), found["command"])
        for found in result.document["findings"]
        if severity in (None, found["severity"])
    ]


def test_the_troubles_of_a_cluster_are_found_and_ranked_and_the_exit_code_tells(
    servers: str, run: Run, request: pytest.FixtureRequest
) -> None:
    on_apache = "apache" in request.node.name
    alter = "--alter --add-config transaction.partition.verification.enable=true"
    remedy = (
        f'kafka-configs --bootstrap-server "$FENCEPOST_BOOTSTRAP" --entity-type brokers --entity-default {alter}'
        if on_apache
        else "fencepost txn hanging"
    )
    # An untouched cluster: only what its settings say.
    empty = run("doctor", "--json")
    assert empty.exit_code == 1  # `transaction.partition.verification.enable` is off.
    assert findings(empty) == [("verification", "transaction.partition.verification.enable is false", remedy)]

    for topic in ("orders", "audit"):
        assert run("topic", "create", topic).exit_code == 0
    register(servers, POD)
    register(servers, UUID)
    rivals = [register(servers, "rival") for _ in range(4)]
    stuck = register(servers, "orders-sink")
    stuck.begin_transaction()
    for value in ("a", "b"):
        stuck.produce("orders", value, partition=0)
    assert stuck.flush(TIMEOUT_S) == 0
    producer_id, _ = hang(servers, "audit", "audit-1")
    with KafkaClient({"bootstrap.servers": servers}) as client:
        commit_offsets(client, "billing", {("orders", 0): 0})

    ill = run("doctor", "--max-age", "1ms", "--json")
    assert ill.exit_code == 1
    abort = f"fencepost txn abort --topic audit --partition 0 --producer-id {producer_id}"
    assert sorted(findings(ill, "problem")[:-1]) == [
        ("duel", "4 producers registered `rival` within TIME", "fencepost txn explain rival"),
        ("hanging", f"a transaction of `audit-1` (producer {producer_id}) hangs on audit-0 since offset 0", abort),
        ("lso-stall", "readers of orders-0 wait for `orders-sink` for TIME", "fencepost txn explain orders-sink"),
    ]
    # What follows from the others comes last.
    waits = "group `billing` waits behind the last stable offset of orders-0"
    assert findings(ill, "problem")[-1] == ("group-waits", waits, "fencepost group describe billing")
    assert findings(ill, "risk") == [
        ("pod-ids", f"1 of 5 transactional ids look like the names of Kubernetes pods: `{POD}`", "fencepost txn list"),
        ("random-ids", f"1 of 5 transactional ids look random: `{UUID}`", "fencepost txn list"),
        ("verification", "transaction.partition.verification.enable is false", remedy),
    ]
    # One broker is not blamed for what it cannot do.
    assert findings(ill, "information") == [("replication", "__transaction_state has 1 copy", None)]
    assert ill.document["transactional_id_count"] == 5
    assert (ill.document["problem_count"], ill.document["risk_count"]) == (4, 3)
    assert ill.document["problems"] == []

    text = run("doctor", "--max-age", "1ms")
    assert "error: 4 problems and 3 risks found" in text.err
    assert f"  {abort}\n" in text.out.replace("\n             ", "\n  ")

    # The commands that it names are the cure.
    assert run(*abort.split()[1:], "--yes").exit_code == 0
    assert run("txn", "fence", "orders-sink", "--yes").exit_code == 0
    well = run("doctor", "--max-age", "1ms", "--json")
    assert [check for check, _, _ in findings(well, "problem")] == ["duel"]
    del rivals


def test_a_transaction_near_its_timeout_is_a_risk(servers: str, run: Run, unique: Callable[[str], str]) -> None:
    topic, id_ = unique("slow"), unique("slow-sink")
    run("topic", "create", topic)
    producer = Producer(
        {"bootstrap.servers": servers, "transactional.id": id_, "transaction.timeout.ms": 3000, "log_level": 0}
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"slow", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    while not (near := [f for f in findings(run("doctor", "--json")) if f[0] == "timeout"]):
        pass
    [(_, summary, command)] = near
    assert re.fullmatch(rf"`{id_}` has used \d+ % of its timeout", summary)
    assert command == f"fencepost txn explain {id_}"


@pytest.mark.parametrize("servers", KINDS[1:], indirect=True)
def test_the_lines_for_kafka_configs_are_accepted_and_their_findings_go(
    servers: str, run: Run, unique: Callable[[str], str]
) -> None:
    topic, id_ = unique("audit"), unique("audit-sink")
    run("topic", "create", topic)
    register(servers, id_)
    run_line(alter_config(STATE_TOPIC, ",".join(BAD_SETTINGS)), servers)
    try:
        while len(lines := lines_for_kafka_configs(run)) <= len(BAD_SETTINGS):
            pass
        assert lines.keys() == {"delete-retention", "cleanup-policy", "unclean-election", "verification"}
        for line in lines.values():
            run_line(line, servers)
        # A broker learns of the change a moment after it was accepted.
        while lines_for_kafka_configs(run):
            pass
        with pytest.raises(AssertionError, match="TRANSACTION_ABORTABLE"):
            hang(servers, topic, id_)
    finally:
        run_line(alter_config(ALL_BROKERS, "transaction.partition.verification.enable=false"), servers)
        while "verification" not in lines_for_kafka_configs(run):
            pass


def lines_for_kafka_configs(run: Run) -> dict[str, str]:
    """The lines that doctor prints, by check."""
    found = run("doctor", "--json").document["findings"]
    return {f["check"]: f["command"] for f in found if (f["command"] or "").startswith("kafka-configs")}


@pytest.mark.parametrize("servers", KINDS[1:], indirect=True)
def test_a_broker_tells_the_metadata_version_by_which_its_release_is_known(servers: str) -> None:
    with KafkaClient({"bootstrap.servers": servers}) as client:
        snapshot = collect_doctor(client)
    assert (snapshot.metadata_versions, snapshot.ends_bump_epochs) == ((30,), True)  # Of 4.3, with which tests run.


@pytest.mark.parametrize("setting", ["transaction.max.timeout.ms", "transactional.id.expiration.ms"])
def test_what_brokers_read_when_they_start_cannot_be_changed_while_they_run(servers: str, setting: str) -> None:
    changed = IncrementalAlterConfigsRequest.AlterableConfig(setting, SET, "604800000")
    for broker in ("", "1"):  # All brokers, and one.
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(BROKER, broker, [changed])
        with KafkaClient({"bootstrap.servers": servers}) as client:
            [answer] = client.send(client.any_broker(), IncrementalAlterConfigsRequest([resource])).responses
        assert errors.name_of(answer.error_code) == "INVALID_REQUEST"
        assert answer.error_message.startswith(f"Cannot update these configs dynamically: [{setting}]")


def test_a_cluster_that_does_not_answer_is_not_called_healthy(run: Run) -> None:
    unreachable = run("doctor", "--bootstrap", "127.0.0.1:1")
    assert unreachable.exit_code == 3
    assert unreachable.out == ""


@pytest.mark.parametrize("settings", [{}, {"transaction.max.timeout.ms": "86400000"}], ids=["healthy", "risky"])
def test_the_exit_code_is_0_only_if_nothing_is_wrong(
    settings: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    from fencepost.cli import main

    with Broker(settings=settings) as broker:
        register(broker.bootstrap_servers, "orders-sink-1")
        capsys.readouterr()
        code = main(["doctor", "--bootstrap", broker.bootstrap_servers])
        shown = capsys.readouterr()
    assert code == (1 if settings else 0)
    assert ("transaction.max.timeout.ms is 1 d" in shown.out) is bool(settings)
    assert "INFORMATION  __transaction_state has 1 copy" in shown.out
    assert ("nothing is wrong: 1 broker," in shown.err) is not bool(settings)


@pytest.mark.parametrize("ends_meanwhile", [True, False])
def test_a_transaction_that_may_not_be_seen_is_a_problem_only_if_it_does_not_end(ends_meanwhile: bool) -> None:
    with Broker() as broker, KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        broker.create_topic("orders")
        producer = register(broker.bootstrap_servers, "orders-sink-1")
        producer.begin_transaction()
        producer.produce("orders", b"half an order")
        producer.flush(TIMEOUT_S)
        is_committed = False

        def commit_once(done: int, total: int) -> None:
            """Called while the log of transactions is read, which is after the first look at the partitions."""
            nonlocal is_committed
            if ends_meanwhile and not is_committed:
                producer.commit_transaction(TIMEOUT_S)
                is_committed = True

        with broker.faults.inject_error("DescribeProducers", "TOPIC_AUTHORIZATION_FAILED", times=None):
            # The second look need not wait: the transaction has ended before it, or does not end at all.
            report = diagnose_doctor(collect_doctor(client, commit_once, max_age_ms=0))
    assert is_committed is ends_meanwhile
    assert ("unseen" in {found.check for found in report.findings}) is not ends_meanwhile
    assert any("TOPIC_AUTHORIZATION_FAILED" in problem for problem in report.problems)
