"""The document of the page of a transactional id."""

from __future__ import annotations

import json

from fencepost.diagnose.snapshot import TxnSnapshot
from fencepost.diagnose.timeline.timeline import TimelineSnapshot
from fencepost.machines.txn.states import TxnState
from fencepost.web.pages.txn import txn_document
from tests.unit.diagnose.snapshots import ORDERS, described, ends, entry, producer, txn_snapshot

OPEN = txn_snapshot(
    described(partitions=(ORDERS,)),
    history=(entry(TxnState.EMPTY, -900), entry(TxnState.ONGOING, -800)),
    ends={ORDERS: ends(40, 45)},
    producers={ORDERS: (producer(40),)},
)


def test_the_document_has_state_way_steps_and_explanation_as_json_values() -> None:
    document = json.loads(json.dumps(txn_document(TimelineSnapshot(txn=OPEN))))
    assert document["txn"]["state"] == document["machine"]["current"] == "Ongoing"
    assert document["machine"]["way"] == ["Empty", "Ongoing"]
    assert [(step["name"], step["look"]) for step in document["timeline"]["steps"]] == [
        ("Empty", "plain"),
        ("Ongoing", "open"),
        ("readers wait", "open"),
    ]
    assert document["explanation"]["cause"] == "open"
    assert [block["topic"] for block in document["explanation"]["blocks"]] == ["orders"]


def test_commands_in_the_document_name_the_cluster() -> None:
    document = txn_document(TimelineSnapshot(txn=OPEN), ("--bootstrap", "kafka:9092"))
    commands = [action["command"] for action in document["explanation"]["actions"] if action["command"]]
    assert commands == ["fencepost txn fence orders-sink --bootstrap kafka:9092"]


def test_an_unknown_id_is_explained_with_the_ids_that_look_like_it() -> None:
    unknown = TxnSnapshot(
        now_ms=0, transactional_id="order-sink", coordinator=1, txn=None, history=(), similar=("orders-sink",)
    )
    document = txn_document(TimelineSnapshot(txn=unknown))
    assert document["txn"] is None
    assert document["similar"] == ["orders-sink"]
    assert document["timeline"]["steps"] == []
    assert document["explanation"]["cause"] == "unknown_id"
