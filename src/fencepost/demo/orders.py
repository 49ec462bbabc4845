"""The orders of the brew demo. An order is three records: the order, its payment and its shipment."""

from __future__ import annotations

import json
import random
import uuid
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from fencepost.demo.report import DemoFailed
from fencepost.demo.topics import ORDERS, PAYMENTS, QUIET, SEE_LOG, SHIPMENTS

TIMEOUT_S = 30.0
TOO_LONG = (
    "the broker refuses timeouts longer than its transaction.max.timeout.ms (default: 15 minutes); "
    "choose a shorter timeout"
)
DRINKS = ("espresso", "flat white", "cortado", "filter", "cold brew")


def new_run_id() -> str:
    """Distinguishes the records of this run from all others in the same topics."""
    return f"brew-{uuid.uuid4().hex[:8]}"


def records_of_order(order_id: str, rng: random.Random) -> list[tuple[str, str]]:
    """(topic, value) of the three records; their key is the order id."""
    drink, cents = rng.choice(DRINKS), rng.randrange(250, 600, 10)
    return [
        (ORDERS, json.dumps({"order_id": order_id, "status": "PLACED", "drink": drink})),
        (PAYMENTS, json.dumps({"order_id": order_id, "amount_cents": cents})),
        (SHIPMENTS, json.dumps({"order_id": order_id, "task": "deliver"})),
    ]


class OrderProducer:
    """A confluent-kafka producer whose `send` waits for the acknowledgement of every record.

    With a transactional id it writes in transactions. Without one it is still idempotent.
    """

    def __init__(self, bootstrap_servers: str, transactional_id: str | None = None, **config: Any) -> None:
        config = {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, **QUIET, **config}
        if transactional_id is not None:
            config["transactional.id"] = transactional_id
        self._producer = Producer(config)

    def init_transactions(self) -> None:
        self._call(self._producer.init_transactions)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def commit(self) -> None:
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction)

    def send(self, records: list[tuple[str, str]], key: str) -> None:
        """Send and wait: an abort drops the records that are still in the client, so the log would not contain them."""
        errors: list[str] = []
        for topic, value in records:
            self._producer.produce(
                topic, value, key, on_delivery=lambda e, _: errors.append(e.str()) if e is not None else None
            )
        waiting = self._producer.flush(TIMEOUT_S)
        if errors or waiting:
            raise DemoFailed(
                f"{key} was not written: {errors[0] if errors else f'no answer for {TIMEOUT_S:g} s'}",
                "is the broker still running?",
            )

    def _call(self, step: Any) -> None:
        for attempt in range(3):
            try:
                step(TIMEOUT_S)
                return
            except KafkaException as error:
                reason = error.args[0]
                if not reason.retriable() or attempt == 2:
                    hint = TOO_LONG if reason.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT else SEE_LOG
                    raise DemoFailed(f"{step.__name__} failed: {reason.str()}", hint) from None
