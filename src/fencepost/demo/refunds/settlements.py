"""The settlements of one run: their transactions, and the refund that is due for each.

Some settlements are sent twice, as happens with at-least-once delivery, and some are in aborted transactions. There
must be no second refund for the former and no refund for the latter.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, Producer

from fencepost.demo.report import DemoFailed
from fencepost.demo.topics import QUIET, SEE_LOG

# Each merchant's fee on a refund, in basis points.
MERCHANTS = (
    ("arabica-bros", 150),
    ("bean-counters", 0),
    ("crema-and-co", 275),
    ("drip-society", 90),
    ("espresso-lane", 199),
    ("filter-house", 320),
    ("grind-core", 45),
)
TRANSACTIONS = 40
SHARE_ABORTED = 0.2
SHARE_SENT_TWICE = 0.1
TIMEOUT_S = 60.0


class Settlement(NamedTuple):
    settlement_id: str
    merchant: str
    amount_cents: int

    @property
    def fee_cents(self) -> int:
        return self.amount_cents * dict(MERCHANTS)[self.merchant] // 10_000


class WrittenTogether(NamedTuple):
    """The settlements of one transaction."""

    commit: bool
    settlements: list[Settlement]


def new_settlements(prefix: str, count: int, rng: random.Random) -> Iterator[Settlement]:
    names = [name for name, _ in MERCHANTS]
    for number in range(1, count + 1):
        yield Settlement(f"{prefix}-{number:06}", rng.choice(names), rng.randrange(100, 50_000))


def plan_transactions(count: int, rng: random.Random, prefix: str = "s") -> list[WrittenTogether]:
    """`count` settlements in committed transactions, some of them sent twice, and others in aborted transactions."""
    size = max(1, count // TRANSACTIONS)
    valid = list(new_settlements(prefix, count, rng))
    plan: list[WrittenTogether] = []
    for first in range(0, count, size):
        if rng.random() < SHARE_ABORTED:
            plan.append(WrittenTogether(False, list(new_settlements(f"{prefix}-aborted-{first}", size, rng))))
        earlier = valid[:first]
        again = rng.sample(earlier, min(len(earlier), round(size * SHARE_SENT_TWICE)))
        plan.append(WrittenTogether(True, valid[first : first + size] + again))
    return plan


def due(plan: list[WrittenTogether]) -> dict[str, Settlement]:
    """The settlements for which a refund is due, by id."""
    return {s.settlement_id: s for transaction in plan if transaction.commit for s in transaction.settlements}


def write_settlements(bootstrap_servers: str, topic: str, transactional_id: str, plan: list[WrittenTogether]) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": transactional_id, "linger.ms": 1, **QUIET}
    )
    try:
        producer.init_transactions(TIMEOUT_S)
        for commit, settlements in plan:
            producer.begin_transaction()
            for settlement in settlements:
                producer.produce(topic, json.dumps(settlement._asdict()), settlement.settlement_id)
            # Flush before an abort: otherwise the client drops the records, and the log contains no aborted records.
            waiting = producer.flush(TIMEOUT_S)
            if waiting:
                raise DemoFailed(f"{waiting} settlements were not written in {TIMEOUT_S:g} s", SEE_LOG)
            end: Any = producer.commit_transaction if commit else producer.abort_transaction
            end(TIMEOUT_S)
    except KafkaException as error:
        raise DemoFailed(f"cannot write settlements to {topic}: {error.args[0].str()}", SEE_LOG) from None
