"""The inside of a client's process: `python -m fencepost.verify.workload.child`.

The first line on stdin says who it is; `retire` follows when another client has its transactional id, and the end of
stdin tells it to stop. So it also ends when its parent ends, in whatever way.
"""

from __future__ import annotations

import faulthandler
import json
import random
import sys
import threading
from pathlib import Path
from typing import Any

from fencepost.protocol.transaction_version import TV1, TV2
from fencepost.verify.workload.copier import Copier
from fencepost.verify.workload.notes import Notes
from fencepost.verify.workload.plan import LIBRDKAFKA, OWN_V1, ClientPlan
from fencepost.verify.workload.producer import InputSource, TxnProducer
from fencepost.verify.workload.reading import Follower
from fencepost.verify.workload.writer import ClientOrders, TxnWriter

RETIRE = "retire"


def main() -> int:
    faulthandler.enable()
    given = json.loads(sys.stdin.readline())
    plan = ClientPlan(**given["client"])
    notes = Notes(Path(given["part"]), plan.name)
    orders = ClientOrders(plan.pause_s)
    threading.Thread(target=_hear, args=(orders,), daemon=True).start()
    settings: dict[str, Any] = given["settings"]
    if plan.role == "reader":
        Follower(notes, settings, plan.isolation, plan.topics).run(orders.stop)
        return 0
    rng = random.Random(f"{given['seed']}/{plan.name}")

    def open_producer() -> TxnProducer:
        return _producer(plan, settings, notes)

    if plan.role == "writer":
        TxnWriter(notes, rng, orders, open_producer, plan.topics).run()
    else:
        Copier(notes, rng, orders, open_producer, lambda made: _source(plan, settings, made), plan.target).run()
    return 0


def _hear(orders: ClientOrders) -> None:
    for line in sys.stdin:
        if line.strip() == RETIRE:
            orders.retire.set()
    orders.stop.set()


def _producer(plan: ClientPlan, settings: dict[str, Any], notes: Notes) -> TxnProducer:
    if plan.kind == LIBRDKAFKA:
        from fencepost.verify.workload.librdkafka import RdkafkaProducer

        return RdkafkaProducer(settings, notes, plan.transactional_id)
    from fencepost.verify.workload.own import OwnProducer

    return OwnProducer(settings, notes, plan.transactional_id, TV1 if plan.kind == OWN_V1 else TV2)


def _source(plan: ClientPlan, settings: dict[str, Any], producer: Any) -> InputSource:
    [(topic, partitions)] = plan.topics.items()
    if plan.kind == LIBRDKAFKA:
        from fencepost.verify.workload.librdkafka import RdkafkaSource

        return RdkafkaSource(settings, producer, plan.group_id, topic)
    from fencepost.verify.workload.own import OwnSource

    return OwnSource(settings, producer, plan.group_id, topic, partitions)


if __name__ == "__main__":
    raise SystemExit(main())
