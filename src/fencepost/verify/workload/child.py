"""The inside of a client's process: `python -m fencepost.verify.workload.child`.

The first line on stdin says who it is; `retire` follows when another client has its transactional id, and `stop` tells
it to end after its transaction. If stdin ends without it, its parent has died: it ends at once.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fencepost.protocol.transaction_version import TV1, TV2
from fencepost.verify.workload.notes import Notes
from fencepost.verify.workload.plan import JAVA, LIBRDKAFKA, OWN_V1, ClientPlan
from fencepost.verify.workload.producer import InputSource, TxnProducer
from fencepost.verify.workload.reading import Follower
from fencepost.verify.workload.writer import ClientOrders, Copier, TxnWriter

RETIRE, STOP = "retire", "stop"


def main() -> int:
    faulthandler.enable()
    given = json.loads(sys.stdin.readline())
    plan = ClientPlan(**given["client"])
    notes = Notes(Path(given["part"]), plan.name)
    orders = ClientOrders(plan.pause_s)
    threading.Thread(target=_hear, args=(orders,), daemon=True).start()
    settings: dict[str, Any] = given["settings"]
    if plan.role == "reader":
        Follower(notes, settings, plan.isolation, plan.topics, plan.groups).run(orders.stop)
        return 0
    rng = random.Random(f"{given['seed']}/{plan.name}")
    library = _LIBRARIES.get(plan.kind, _own)(plan, settings, notes)
    if plan.role == "writer":
        TxnWriter(notes, rng, orders, library.open_producer, plan.topics).run()
    else:
        Copier(notes, rng, orders, library.open_producer, library.open_source, plan.target).run()
    return 0


def _hear(orders: ClientOrders) -> None:
    for line in sys.stdin:
        if line.strip() == RETIRE:
            orders.retire.set()
        elif line.strip() == STOP:
            orders.stop.set()
            return  # Python cannot end while a thread reads stdin.
    os._exit(1)


class _Library(NamedTuple):
    """How a client library makes the producers and sources of a client."""

    open_producer: Callable[[], TxnProducer]
    open_source: Callable[[Any], InputSource]  # From its producer.


def _librdkafka(plan: ClientPlan, settings: dict[str, Any], notes: Notes) -> _Library:
    from fencepost.verify.workload.librdkafka import RdkafkaProducer, RdkafkaSource

    return _Library(
        lambda: RdkafkaProducer(settings, notes, plan.transactional_id),
        lambda producer: RdkafkaSource(settings, producer, plan.group_id, *plan.topics),
    )


def _java(plan: ClientPlan, settings: dict[str, Any], notes: Notes) -> _Library:
    from fencepost.verify.workload.java.client import JavaProducer, JavaProgram, JavaSource, library_settings

    program = JavaProgram(settings["command"], notes)
    kept = library_settings(settings["library"], notes.path.with_suffix(".token"))
    return _Library(
        lambda: JavaProducer(program, notes, kept, plan.transactional_id, settings["transaction_version"]),
        lambda _: JavaSource(program, kept, plan.group_id, *plan.topics),
    )


def _own(plan: ClientPlan, settings: dict[str, Any], notes: Notes) -> _Library:
    from fencepost.verify.workload.own import OwnProducer, OwnSource

    version = TV1 if plan.kind == OWN_V1 else TV2
    return _Library(
        lambda: OwnProducer(settings, notes, plan.transactional_id, version),
        lambda producer: OwnSource(settings, producer, plan.group_id, *next(iter(plan.topics.items()))),
    )


_LIBRARIES = {LIBRDKAFKA: _librdkafka, JAVA: _java}


if __name__ == "__main__":
    raise SystemExit(main())
