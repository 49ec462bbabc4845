"""Consumer groups of a large cluster: a bounded number of offsets is asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.client import GROUP, TRANSACTION, KafkaClient
from fencepost.diagnose.collect import affected
from fencepost.diagnose.collect.affected import offsets_on
from fencepost.diagnose.collect.groups import collect_groups
from fencepost.protocol.messages import FindCoordinatorRequest
from fencepost.testing import Broker
from tests.large_cluster import SETTINGS, commit_offsets, leave_offsets_open
from tests.readers.reading import connect

PARTITIONS = 5
IN_TRANSACTION = ["a", "b", "c"]


@pytest.fixture(scope="module")
def client() -> Iterator[KafkaClient]:
    with Broker(settings=SETTINGS, topics={"orders": PARTITIONS}) as broker, connect(broker.bootstrap_servers) as raw:
        for kind in (TRANSACTION, GROUP):
            raw.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=["a"]), version=4)
        commit_offsets(raw, "reader", "orders", range(4))
        for group_id in IN_TRANSACTION:
            leave_offsets_open(raw, f"sink-{group_id}", group_id, "orders")
        with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
            yield client


def test_first_offsets_in_transactions_are_asked_for_few_groups_and_the_others_are_counted(client: KafkaClient) -> None:
    every = collect_groups(client)
    assert (sorted(every.offsets), every.problems) == ([*IN_TRANSACTION, "reader"], ())
    some = collect_groups(client, most_pending=2 * PARTITIONS)
    assert len(set(some.offsets) & set(IN_TRANSACTION)) == 2
    [problem] = some.problems
    assert problem == (
        "1 group may have a first offset in a transaction; the page of a group and `fencepost group describe` show it"
    )


def test_many_groups_on_many_partitions_are_asked_for_what_they_have_committed(
    client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = NamedPartition("orders", 3)
    few = offsets_on(client, [where])
    monkeypatch.setattr(affected, "MOST_ASKED", 0)
    many = offsets_on(client, [where])
    assert many == few
    assert list(many.found) == ["reader"]
