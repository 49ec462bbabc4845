"""The document of /tap: lanes of clients and brokers, and a step for each request and reply."""

from __future__ import annotations

import json
from typing import Any

from fencepost.tap.decoding import WireEvent
from fencepost.web.pages.tap import MOST_EVENTS, SHOWN_STEPS, Wire, tap_document


def event(number: int, kind: str, api: str = "EndTxn", **given: Any) -> WireEvent:
    common: dict[str, Any] = {
        "at_us": 1_700_000_000_000_000 + number, "kind": kind, "connection": 1, "client": "127.0.0.1:5000",
        "client_id": "shop", "broker": "kafka:9092", "node_id": 1, "api": api, "version": 5, "correlation_id": number,
        "transactional_id": "orders-1", "producer_id": 4, "producer_epoch": 2, "about": {}, "error": None,
        "duration_us": None, "fault": None,
    }  # fmt: skip
    return WireEvent(**common | given)


def test_a_request_goes_from_its_client_to_the_broker_and_the_reply_back() -> None:
    events = [
        event(1, "request", about={"committed": True}),
        event(1, "reply", error="NONE", duration_us=1500, about={"base_offsets": {"a-0": 1}}),
        event(2, "request", about={"committed": False}),
        event(2, "reply", error="PRODUCER_FENCED", duration_us=900),
        event(3, "request", about={"committed": False}, fault="drop"),
        event(3, "unanswered"),
    ]
    document = tap_document("127.0.0.1:9093", events, "")
    json.dumps(document, allow_nan=False)
    assert [(lane["key"], lane["title"]) for lane in document["lanes"]] == [
        ("client shop", "shop"),
        ("broker kafka:9092", "broker 1"),
    ]
    assert [(step["name"], step["sender"], step["look"]) for step in document["steps"]] == [
        ("EndTxn v5", "client shop", "plain"),
        ("EndTxn: NONE", "broker kafka:9092", "committed"),
        ("EndTxn v5", "client shop", "plain"),
        ("EndTxn: PRODUCER_FENCED", "broker kafka:9092", "refused"),
        ("EndTxn v5", "client shop", "plain"),
        ("EndTxn: no reply", "broker kafka:9092", "waiting"),
    ]
    assert document["steps"][4]["sentence"] == "orders-1 abort [drop]"
    [source] = document["steps"][1]["sources"]
    assert source["fields"]["duration_us"] == 1500
    assert source["fields"]["base_offsets"] == ["a-0: 1"]


def test_the_page_has_the_last_steps_of_those_that_were_searched_for() -> None:
    events = [event(n, "request", transactional_id=f"t-{n % 2}") for n in range(300)]
    document = tap_document("127.0.0.1:9093", events, "t-1")
    assert (document["count"], len(document["steps"])) == (150, SHOWN_STEPS)
    assert document["steps"][-1]["at_ms"] == events[299].at_us // 1000
    assert tap_document("127.0.0.1:9093", events, "nothing")["steps"] == []


def test_memory_has_the_last_events_only() -> None:
    wire = Wire()
    for n in range(MOST_EVENTS + 10):
        wire.add(event(n, "request"))
    assert len(wire.last()) == MOST_EVENTS
    assert wire.last()[0].correlation_id == 10
