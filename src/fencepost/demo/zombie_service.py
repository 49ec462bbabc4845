"""One of the two processes of `zombie`: writes a transaction after the other, until somebody takes its id.

    python -m fencepost.demo.zombie_service BOOTSTRAP_SERVERS TRANSACTIONAL_ID ROLE

On stdin it gets a word at a time: `commit` for a whole transaction, `open` for one without an end, `end` to end that.
On stdout it says `ready`, then what became of each: `committed`, `open`, or `FENCED` with the reason, which is its end.
"""

from __future__ import annotations

import json
import sys

from confluent_kafka import KafkaError, KafkaException, Producer

from fencepost.demo.orders import TIMEOUT_S
from fencepost.demo.topics import QUIET, SILENT

TOPIC = "brew.zombie.v1"
FENCED = "FENCED"
EXIT_FENCED = 3
# What librdkafka says is the first of these; the other two are the broker's own words for it.
FENCING = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}


class Fenced(Exception):
    """Somebody else has this transactional id now. There is nothing to try again."""


class Worker:
    """A producer that knows when it has lost its id."""

    def __init__(self, bootstrap_servers: str, transactional_id: str, role: str) -> None:
        self._role = role
        self._attempt = 0
        config = {"bootstrap.servers": bootstrap_servers, "transactional.id": transactional_id}
        self._producer = Producer({**config, **QUIET, **SILENT})
        # From here on, whoever had the id before is fenced, and what it had open is aborted.
        self._producer.init_transactions(TIMEOUT_S)

    def open(self) -> str:
        """Begin a transaction and write to it; return what was written. Raises Fenced."""
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
    return Fenced(f"{reason.name()}: {reason.str()}") if reason.code() in FENCING else error


def main(bootstrap_servers: str, transactional_id: str, role: str) -> int:
    worker = Worker(bootstrap_servers, transactional_id, role)
    print("ready", flush=True)
    for line in sys.stdin:
        word = line.strip()
        try:
            if word in ("commit", "open"):
                worker.open()
            if word in ("commit", "end"):
                worker.commit()
        except Fenced as reason:
            print(f"{FENCED} {reason}", flush=True)
            return EXIT_FENCED
        print("open" if word == "open" else "committed", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
