"""One of the two processes of `zombie`: writes transactions until another process registers its transactional id.

    python -m fencepost.demo.zombie_service BOOTSTRAP_SERVERS TRANSACTIONAL_ID ROLE [TRANSACTION_TIMEOUT_MS]

It reads one command per line from stdin: `commit` writes and commits a transaction, `open` begins a transaction and
leaves it open, `end` commits the open transaction. It prints `ready`, then the result of each command: `committed`,
`open`, or `FENCED` with the reason. After `FENCED` the process exits.
"""

from __future__ import annotations

import json
import sys

from confluent_kafka import KafkaError, KafkaException, Producer

from fencepost.demo.orders import TIMEOUT_S
from fencepost.demo.stage import TRANSACTION_TIMEOUT_MS
from fencepost.demo.topics import QUIET, SILENT

TOPIC = "brew.zombie.v1"
FENCED = "FENCED"
EXIT_FENCED = 3
# librdkafka reports fencing with the first of these errors, brokers report it with the other two.
FENCING = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}


class WorkerFenced(Exception):
    """Another producer has registered this transactional id. A retry cannot succeed."""


class Worker:
    """A producer that raises WorkerFenced after another producer has registered its transactional id."""

    def __init__(
        self, bootstrap_servers: str, transactional_id: str, role: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> None:
        self._role = role
        self._attempt = 0
        config = {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
        }
        self._producer = Producer({**config, **QUIET, **SILENT})
        # This registers the id: the previous producer is fenced and its open transaction aborted.
        self._producer.init_transactions(TIMEOUT_S)

    def open(self) -> str:
        """Begin a transaction, write one record, and return its value. Raises WorkerFenced."""
        self._attempt += 1
        value = json.dumps({"role": self._role, "attempt": self._attempt})
        try:
            self._producer.begin_transaction()
            self._producer.produce(TOPIC, value, self._role)
            self._producer.flush(TIMEOUT_S)
        except KafkaException as error:
            raise _explained(error) from None
        return value

    def commit(self) -> None:
        try:
            self._producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            raise _explained(error) from None


def _explained(error: KafkaException) -> Exception:
    reason = error.args[0]
    return WorkerFenced(f"{reason.name()}: {reason.str()}") if reason.code() in FENCING else error


def main(bootstrap_servers: str, transactional_id: str, role: str, timeout_ms: str = "") -> int:
    worker = Worker(bootstrap_servers, transactional_id, role, int(timeout_ms or TRANSACTION_TIMEOUT_MS))
    print("ready", flush=True)
    for line in sys.stdin:
        word = line.strip()
        try:
            if word in ("commit", "open"):
                worker.open()
            if word in ("commit", "end"):
                worker.commit()
        except WorkerFenced as reason:
            print(f"{FENCED} {reason}", flush=True)
            return EXIT_FENCED
        print("open" if word == "open" else "committed", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
