"""The exporter and a cluster whose transaction version changes while the exporter runs."""

from __future__ import annotations

import pytest

from fencepost.client.admin.offsets import OffsetToCommit
from fencepost.client.client import KafkaClient
from fencepost.client.transaction import Transaction
from fencepost.diagnose.exporter.collecting import ClusterWatch
from fencepost.testing import Broker
from tests.engines.sparkless import use_transaction_version


def fencings(watch: ClusterWatch) -> float:
    watch.look()
    return next(
        sample.value for family in watch.collect() for sample in family.samples if "fencings_total" in sample.name
    )


def commit(transaction: Transaction) -> None:
    transaction.begin()
    transaction.commit_offsets("readers", [OffsetToCommit("orders", 0, 1)])
    transaction.commit()


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)], ids=["upgrade", "downgrade"])
def test_epochs_of_ordinary_transactions_are_no_fencings_when_the_transaction_version_changes(
    before: int, after: int
) -> None:
    with Broker(settings={"transaction.version": str(before)}) as broker:
        servers = broker.bootstrap_servers
        broker.create_topic("orders")
        with KafkaClient({"bootstrap.servers": servers}) as client:
            complaints: list[str] = []
            watch = ClusterWatch(client, 15, complaints.append)
            if before == 1:
                assert fencings(watch) == 0
                use_transaction_version(servers, after)
            with KafkaClient({"bootstrap.servers": servers}) as writer:  # It has connected after the change.
                transaction = Transaction(writer, "orders-1", 60_000)
                transaction.init()
                commit(transaction)
                seen = fencings(watch)
                commit(transaction)
            if before == 2:
                use_transaction_version(servers, after)
            assert fencings(watch) == seen
