"""Random faults under the sink, and restarts of its query with the same sink or a new one: each row is there once.

The seed decides which requests fail and how; the machine's clock decides how often a client retries. These tests run
without Spark (`sparkless.py`). Tests of each fault with Spark are in `tests/e2e/spark`.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from fencepost.client.failures import ClientError
from fencepost.spark.failures import BatchRefused, SinkError, SinkFenced
from fencepost.spark.sink import ExactlyOnceSink
from fencepost.spark.task.sender import WriteFailed
from fencepost.testing import Broker
from tests.e2e.conftest import StartBroker
from tests.e2e.spark.streams import create_topic
from tests.engines.sparkless import Query, sink_of, use_transaction_version_1
from tests.readers.reading import read_all

SEEDS = range(12)
BATCHES = 4
MOST_TRIES, TRIES_WITH_FAULTS = 25, 18
# The errors with which each request may be answered. The connection of each may also be cut.
ERRORS = {
    "AddOffsetsToTxn": ["CONCURRENT_TRANSACTIONS"],
    "AddPartitionsToTxn": ["CONCURRENT_TRANSACTIONS", "UNKNOWN_SERVER_ERROR"],
    "DescribeGroups": ["UNKNOWN_SERVER_ERROR"],
    "EndTxn": ["CONCURRENT_TRANSACTIONS", "INVALID_TXN_STATE", "NOT_COORDINATOR", "UNKNOWN_SERVER_ERROR"],
    "FindCoordinator": ["COORDINATOR_NOT_AVAILABLE"],
    "InitProducerId": ["CONCURRENT_TRANSACTIONS", "NOT_COORDINATOR", "UNKNOWN_SERVER_ERROR"],
    "Metadata": [],
    "OffsetFetch": ["NOT_COORDINATOR", "UNKNOWN_SERVER_ERROR", "UNSTABLE_OFFSET_COMMIT"],
    "Produce": ["INVALID_TXN_STATE", "NOT_LEADER_OR_FOLLOWER", "OUT_OF_ORDER_SEQUENCE_NUMBER"],
    "TxnOffsetCommit": ["CONCURRENT_TRANSACTIONS", "INVALID_TXN_STATE", "NOT_COORDINATOR", "TRANSACTION_ABORTABLE"],
}


def inject(broker: Broker, rng: random.Random) -> None:
    api, at = rng.choice(list(ERRORS)), rng.choice(["request", "reply"])
    when = {"times": rng.choice([1, 1, 2]), "skip": rng.choice([0, 0, 0, 1, 2]), "client_id": "fencepost"}
    if ERRORS[api] and rng.random() < 0.5:
        broker.faults.inject_error(api, rng.choice(ERRORS[api]), at=at, **when)  # type: ignore[arg-type]
    else:
        broker.faults.disconnect_on(api, at=at, **when)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [2, pytest.param(1, marks=pytest.mark.engines)])
def test_every_row_is_there_once_whatever_request_fails(
    start_broker: StartBroker, tmp_path: Path, version: int
) -> None:
    broker = start_broker()
    create_topic(broker.bootstrap_servers, "in", 1)
    if version == 1:
        use_transaction_version_1(broker)
    for seed in SEEDS:
        play(broker, tmp_path / str(seed), seed)


def play(broker: Broker, folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    topic = create_topic(broker.bootstrap_servers, f"out-{seed}", 1)
    query = Query(folder, topic=topic)
    group = {"group_id": f"lag-{seed}"} if rng.random() < 0.5 else {}

    def new_sink() -> ExactlyOnceSink:
        settings: dict[str, Any] = {"transactional_id": f"faults-{seed}", "request_timeout_ms": 2000, **group}
        return sink_of(broker.bootstrap_servers, folder, max_attempts=rng.choice([1, 3]), **settings)

    sink, batch, tries = new_sink(), 0, 0
    while batch < BATCHES:
        tries += 1
        assert tries <= MOST_TRIES, f"seed {seed}: batch {batch} is never written"
        for _ in range(rng.choice([0, 1, 1, 2, 3]) if tries < TRIES_WITH_FAULTS else 0):
            inject(broker, rng)
        is_fenced = False
        try:
            query.run(sink, batch, [f"{batch}-{row}" for row in range(2)])
        except BatchRefused:
            raise  # None of these faults makes the outcome unclear for good.
        except (ClientError, SinkError, WriteFailed) as error:
            is_fenced = isinstance(error, SinkFenced)
        else:
            # The driver may die after the commit and before Spark has noted it.
            if rng.random() < 0.8:
                batch += 1
                continue
        query.restart()
        if is_fenced or rng.random() < 0.5:
            sink.close()
            sink = new_sink()
    broker.faults.clear()
    sink.close()
    found = [record.value for record in read_all(broker.bootstrap_servers, [topic])]
    assert sorted(found) == [f"{batch}-{row}" for batch in range(BATCHES) for row in range(2)], f"seed {seed}"
