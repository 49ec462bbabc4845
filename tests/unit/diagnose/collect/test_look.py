"""Were all coordinators asked? A transaction of one that is down neither hangs nor is an orphan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from confluent_kafka import Producer

from fencepost.cli import main
from fencepost.client.admin.answers import Answers
from fencepost.client.client import KafkaClient, TopicInfo
from fencepost.client.failures import BrokerError
from fencepost.diagnose.collect import look, partitions
from fencepost.diagnose.collect.look import answered_by_another, unasked_coordinators
from fencepost.diagnose.collect.state_log import no_progress, read_state_memory
from fencepost.diagnose.hanging import diagnose_hanging
from fencepost.diagnose.lso import diagnose_lso
from fencepost.diagnose.snapshot import TXN_TOPIC
from fencepost.machines.txn.records import partition_for
from fencepost.protocol import errors
from fencepost.testing import Broker
from tests.unit.diagnose.snapshots import described

ID = "orders-sink"


def test_all_were_asked_where_every_partition_has_one_leader_all_the_time() -> None:
    assert unasked_coordinators((1, 2, 1), (1, 2, 1)) == []
    assert unasked_coordinators((), ()) == []


@pytest.mark.parametrize("after", [(1, -1), (1, 2), (1,)])
def test_a_partition_without_a_leader_was_not_asked(after: tuple[int, ...]) -> None:
    before = (1, -1) if after == (1, 2) else (1, 2)
    [problem] = unasked_coordinators(before, after)
    assert problem.startswith("no broker leads __transaction_state-1, so")


def test_a_partition_that_moved_meanwhile_may_have_been_missed_by_both() -> None:
    [problem] = unasked_coordinators((1, 2, 3), (2, 2, 1))
    assert problem.startswith("__transaction_state-0 and __transaction_state-2 moved to another broker meanwhile")


def test_many_partitions_are_one_problem() -> None:
    [problem] = unasked_coordinators((-1,) * 50, (-1,) * 50)
    assert "__transaction_state-3 and 46 more" in problem


def test_only_the_leader_of_its_partition_is_believed_about_an_id() -> None:
    txn = described()
    assert (txn.transactional_id, txn.coordinator) == (ID, 1)
    index = partition_for(ID, 4)
    others = [2, 2, 2, 2]
    mine = [*others]
    mine[index] = 1
    assert answered_by_another(txn, mine, mine) is None
    assert answered_by_another(txn, (), ()) is None
    for before, after in ((others, others), (mine, others), (others, mine)):
        assert answered_by_another(txn, before, after) == (
            f"broker 1 answered for `{ID}`, but does not lead __transaction_state-{index}"
        )


# --- a cluster of which one broker is down ----------------------------------------------------------------


class OneBrokerIsDown(KafkaClient):
    """Sees a cluster as its metadata shows it while the coordinator of an id is down."""

    def refresh(self, topics: Iterable[str] | None = ()) -> dict[str, TopicInfo]:
        found = super().refresh(topics)
        if TXN_TOPIC in found:
            leaders = list(found[TXN_TOPIC].leaders)
            leaders[partition_for(ID, len(leaders))] = -1
            found[TXN_TOPIC] = found[TXN_TOPIC]._replace(leaders=tuple(leaders))
        return found


class MayNotLook(KafkaClient):
    def refresh(self, topics: Iterable[str] | None = ()) -> dict[str, TopicInfo]:
        wanted = None if topics is None else list(topics)
        if wanted == [TXN_TOPIC]:
            raise BrokerError(errors.TOPIC_AUTHORIZATION_FAILED, f"topic {TXN_TOPIC}")
        return super().refresh(wanted)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """With one healthy open transaction."""
    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": ID, "log_level": 0})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("orders", b"placed")
        assert producer.flush(60) == 0
        yield broker
        producer.abort_transaction(60)


@pytest.fixture
def listed_by_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers that are left list the ids of their own partitions, and no error."""
    monkeypatch.setattr(look, "list_transactions", lambda *_, **__: Answers())


@pytest.mark.parametrize("kind", [OneBrokerIsDown, MayNotLook])
@pytest.mark.usefixtures("listed_by_the_others")
def test_a_healthy_transaction_whose_coordinator_is_down_neither_hangs_nor_is_an_orphan(
    broker: Broker, kind: type[KafkaClient]
) -> None:
    with kind({"bootstrap.servers": broker.bootstrap_servers}) as client:
        report = diagnose_hanging(partitions.collect_hanging(client, ["orders"]))
        assert (report.hanging, report.undecided_count, len(report.problems)) == ((), 1, 1)
        waits = diagnose_lso(partitions.collect_lso(client, ["orders"]))
    assert [(row.waiting, row.is_orphan) for row in waits.partitions] == [(1, False)]
    assert waits.problems == report.problems


@pytest.mark.usefixtures("listed_by_the_others")
def test_a_transaction_that_no_coordinator_knows_hangs_if_all_were_asked(broker: Broker) -> None:
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        report = diagnose_hanging(partitions.collect_hanging(client, ["orders"]))
        assert (len(report.hanging), report.undecided_count, report.problems) == (1, 0, ())
        assert diagnose_lso(partitions.collect_lso(client, ["orders"])).partitions[0].is_orphan


def test_a_coordinator_that_is_deposed_is_not_believed(broker: Broker) -> None:
    with OneBrokerIsDown({"bootstrap.servers": broker.bootstrap_servers}) as client:
        snapshot = partitions.collect_hanging(client, ["orders"])
    assert snapshot.txns == {}
    assert len(snapshot.unanswered_coordinators) == 2


@pytest.mark.usefixtures("listed_by_the_others")
def test_orders_are_advised_for_nothing_that_is_not_known(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fencepost.client.client.KafkaClient", OneBrokerIsDown)
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", broker.bootstrap_servers)
    assert main(["txn", "abort", "--topic", "orders", "--partition", "0", "--yes"]) == 3
    assert (
        "it is not known whether one hangs on orders-0: no broker leads __transaction_state-" in capsys.readouterr().err
    )
    assert main(["txn", "lso", "orders", "--max-age", "0ms"]) == 1
    assert "hint: see `fencepost txn hanging`" in capsys.readouterr().err


def test_what_the_log_of_transactions_does_not_tell_is_a_problem_and_the_rest_is_read(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.client.admin.partitions.LEADER_DEADLINE_S", 0.01)
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    another = next(name for name in map(str, range(99)) if partition_for(name, 50) != partition_for(ID, 50))
    Producer({**settings, "transactional.id": another, "log_level": 0}).init_transactions(60)
    with KafkaClient(settings) as client:
        whole = read_state_memory(client, no_progress)
    assert (set(whole.updated_ms), set(whole.recent), whole.problems) == ({ID, another}, {ID, another}, ())
    with OneBrokerIsDown(settings) as client:
        rest = read_state_memory(client, no_progress)
    assert set(rest.updated_ms) == {another}
    [problem] = rest.problems
    assert problem.startswith(f"the offsets of __transaction_state-{partition_for(ID, 50)} are unknown")
