"""How long `fencepost verify pipeline` waits for a transaction that a killed program left open."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.topics import create_topic
from fencepost.client.client import KafkaClient
from fencepost.client.producing import produce
from fencepost.client.transaction import Transaction
from fencepost.protocol.batch import encode_batch
from fencepost.testing import Broker
from fencepost.verify.pipeline.reader import LATE_S, USUAL_S, patience_for


@pytest.mark.parametrize(("timeout_s", "patience_s"), [(10, USUAL_S), (300, 300 + LATE_S)])
def test_a_transaction_is_given_its_own_timeout(
    broker: Broker, unique: Callable[[str], str], timeout_s: int, patience_s: float
) -> None:
    where, id_ = NamedPartition(unique("payments"), 0), unique("tills")
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        create_topic(client, where.topic, 1, 1)
        assert patience_for(client, [where]).seconds == USUAL_S
        left_open = Transaction(client, id_, timeout_s * 1000, is_verified=True)
        left_open.init()
        left_open.begin()
        left_open.add_partitions([where])
        batch = encode_batch([(b"k", b"v")], 1_000, *left_open.identity[1:], 0, transactional=True)
        produce(client, *where, batch, id_, left_open.version)
        patience = patience_for(client, [where])
        left_open.abort()
    assert patience.seconds == patience_s
    assert (id_ in patience.why) == (patience_s > USUAL_S)
