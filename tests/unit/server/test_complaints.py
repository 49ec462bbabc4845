"""Who was denied what, in the log and in the metrics: enough to find the client, and never enough to fill a disk."""

from __future__ import annotations

from collections.abc import Callable

from fencepost.machines.acl.acls import CLUSTER_NAME, Denial, Operation, ResourceType
from fencepost.server.complaints import LINES_A_MINUTE, Denials, in_words
from fencepost.server.metrics import BrokerCollector, Traffic
from tests.pure_broker import PureBroker

DENIAL = Denial("User:alice", "10.0.0.7", Operation.WRITE, ResourceType.TOPIC, "orders", 0)


class Minutes:
    """Calls what is due when a minute has passed."""

    def __init__(self) -> None:
        self._due: list[Callable[[], None]] = []

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        assert seconds == 60
        self._due.append(action)

    def pass_one(self) -> None:
        due, self._due = self._due, []
        for action in due:
            action()


def denials() -> tuple[Denials, list[str], Minutes]:
    lines: list[str] = []
    minutes = Minutes()
    return Denials(lines.append, minutes.later), lines, minutes


def test_a_line_names_client_operation_resource_and_api() -> None:
    found, lines, _ = denials()
    found.add(DENIAL)
    assert lines == ["denied User:alice at 10.0.0.7: WRITE on topic orders (Produce)"]
    cluster = Denial("User:bob", "::1", Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME, 30)
    assert in_words(cluster) == "denied User:bob at ::1: ALTER on cluster (CreateAcls)"
    transaction = DENIAL._replace(resource_type=ResourceType.TRANSACTIONAL_ID, name="t", api_key=26)
    assert in_words(transaction) == "denied User:alice at 10.0.0.7: WRITE on transactional id t (EndTxn)"


def test_a_client_in_a_loop_gets_one_line_a_minute_and_a_count() -> None:
    found, lines, minutes = denials()
    for _ in range(1000):
        found.add(DENIAL)
    assert len(lines) == 1
    minutes.pass_one()
    assert lines[1:] == ["999 more denials within a minute; a denial that repeats has one line a minute"]
    found.add(DENIAL)
    assert lines[2:] == lines[:1]
    minutes.pass_one()
    assert len(lines) == 3, "a minute without repetitions has no count"


def test_names_that_differ_do_not_fill_the_log_either() -> None:
    found, lines, minutes = denials()
    for number in range(5 * LINES_A_MINUTE):
        found.add(DENIAL._replace(name=f"orders-{number}" + "x" * 10_000))
    assert len(lines) == LINES_A_MINUTE
    assert max(map(len, lines)) < 500
    minutes.pass_one()
    assert lines[-1].startswith(f"{4 * LINES_A_MINUTE} more denials")


def test_denials_are_counted_by_api_operation_and_resource() -> None:
    found, _, _ = denials()
    for _ in range(3):
        found.add(DENIAL)
    found.add(DENIAL._replace(principal="User:bob", name="refunds"))
    found.add(DENIAL._replace(operation=Operation.DESCRIBE, api_key=3))
    broker = PureBroker()
    collector = BrokerCollector(lambda: [broker.cluster], [], Traffic(), lambda: broker.now_ms, found.counts)
    [family] = [one for one in collector.collect() if one.name == "fencepost_authorization_denials"]
    assert [(tuple(sample.labels.values()), sample.value) for sample in family.samples] == [
        (("Produce", "WRITE", "TOPIC"), 4),
        (("Metadata", "DESCRIBE", "TOPIC"), 1),
    ]
