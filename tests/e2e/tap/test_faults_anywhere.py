"""Each word for a fault on any Kafka: whatever the tap does to a transaction, its records are read once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from fencepost.faults.fault import parse_line
from fencepost.testing import Tap
from tests.e2e.conftest import Target
from tests.readers.reading import IMPATIENT, TIMEOUT_S, read_all

pytestmark = [pytest.mark.engines, pytest.mark.timeout(360)]
FAULTS = [
    "delay EndTxn 300ms",
    "delay Produce 300ms request",
    "disconnect EndTxn reply",
    "disconnect EndTxn request times=2",
    "disconnect Produce reply",
    "drop EndTxn reply",
    "drop Produce request",
    "error EndTxn COORDINATOR_NOT_AVAILABLE times=3",
    "error EndTxn COORDINATOR_NOT_AVAILABLE reply",
    "error Produce NOT_LEADER_OR_FOLLOWER reply",
    "error FindCoordinator COORDINATOR_NOT_AVAILABLE times=2",
    "error InitProducerId COORDINATOR_LOAD_IN_PROGRESS times=2",
    "duplicate Produce times=3",
    "duplicate EndTxn times=3",
    "duplicate InitProducerId skip=9",
    "disconnect Metadata",
]


@pytest.mark.parametrize("line", FAULTS)
def test_records_are_read_once_whatever_the_tap_does(line: str, target: Target, unique: Callable[[str], str]) -> None:
    topic = unique("topic")
    with Tap(target.servers) as tap:
        fault = parse_line(line)
        tap._thread.call(lambda: tap._tap.add_fault(fault))
        settings = {
            "bootstrap.servers": tap.bootstrap_servers,
            "transactional.id": unique("txn"),
            # A request without a reply is given up after this time.
            "socket.timeout.ms": 1000,
        }
        producer = Producer(IMPATIENT | settings)
        producer.init_transactions(TIMEOUT_S)
        for n in range(3):
            producer.begin_transaction()
            producer.produce(topic, f"commit-{n}")
            assert producer.flush(TIMEOUT_S) == 0
            producer.commit_transaction(TIMEOUT_S)
        assert fault.hits == (0 if "skip=9" in line else 1 if fault.times_left else fault.hits)
        assert fault.hits or "skip=9" in line
    assert [seen.value for seen in read_all(target.servers, [topic])] == ["commit-0", "commit-1", "commit-2"]
