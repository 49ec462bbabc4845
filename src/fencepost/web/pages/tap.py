"""`/tap`: what passes a tap beside the workbench, as swim-lanes: one for each client, and one for each broker."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fencepost.tap.decoding import WireEvent
from fencepost.tap.text import document_of, said_by
from fencepost.web.cluster import WatchedCluster
from fencepost.web.page import Page, Params, SubjectNotFound, is_found

MOST_EVENTS = 5000
SHOWN_STEPS = 100
LEFT_OUT = ("at_us", "kind", "about", "version", "api")


class Wire:
    """The last events of a tap. One thread adds them, others read them."""

    def __init__(self) -> None:
        self.address = ""  # Of the tap; empty: none runs.
        self._lock = threading.Lock()
        self._events: deque[WireEvent] = deque(maxlen=MOST_EVENTS)

    def add(self, event: WireEvent) -> None:
        with self._lock:
            self._events.append(event)

    def last(self) -> list[WireEvent]:
        with self._lock:
            return list(self._events)


def tap_document(address: str, events: Sequence[WireEvent], search: str) -> dict[str, Any]:
    found = [e for e in events if is_found(search, " ".join((e.transactional_id or "", e.client_id, e.api)))]
    shown = found[-SHOWN_STEPS:]
    asked = {(e.connection, e.correlation_id): e for e in shown if e.kind == "request"}
    return {
        "address": address,
        "search": search,
        "count": len(found),
        "lanes": _lanes(shown),
        "steps": [_step(e, asked.get((e.connection, e.correlation_id))) for e in shown],
    }


def _lanes(events: Sequence[WireEvent]) -> list[dict[str, str]]:
    clients = {_client_key(e): e.client_id or e.client for e in events}
    brokers = {_broker_key(e): e.broker if e.node_id is None else f"broker {e.node_id}" for e in events}
    return [
        *({"key": key, "kind": "producer", "title": title} for key, title in clients.items()),
        *({"key": key, "kind": "coordinator", "title": brokers[key]} for key in sorted(brokers)),
    ]


def _client_key(event: WireEvent) -> str:
    return f"client {event.client_id or event.client}"


def _broker_key(event: WireEvent) -> str:
    return f"broker {event.broker}"


def _step(event: WireEvent, request: WireEvent | None) -> dict[str, Any]:
    client, broker = _client_key(event), _broker_key(event)
    is_request = event.kind == "request"
    fault = "" if event.fault is None else f" [{event.fault}]"
    return {
        "key": f"{event.at_us} {event.connection} {event.correlation_id} {event.kind} {event.fault or ''}".strip(),
        "at_ms": event.at_us // 1000,
        "name": f"{event.api} v{event.version}" if is_request else f"{event.api}: {event.error or 'no reply'}",
        "look": _look(event, request),
        "lane": broker if is_request else client,
        "sender": client if is_request else broker,
        "request": None,
        "state": None,
        "producer_id": event.producer_id,
        "producer_epoch": event.producer_epoch,
        # The name of the step has the error.
        "sentence": f"{event.transactional_id or ''} {said_by(replace(event, error=None))}{fault}".strip(),
        "sources": [
            {
                "kind": event.kind,
                "title": f"{event.api} v{event.version}, {event.kind}",
                "fields": _fields(event),
                "where": None,
                "offset": None,
            }
        ],
    }


def _look(event: WireEvent, request: WireEvent | None) -> str:
    if event.kind == "unanswered":
        return "waiting"
    if event.kind == "request":
        return "plain"
    if event.error not in (None, "NONE"):
        return "refused"
    if event.api == "EndTxn" and request is not None:
        return "committed" if request.about.get("committed") else "aborted"
    return "plain"


def _fields(event: WireEvent) -> dict[str, Any]:
    own = {name: value for name, value in document_of(event).items() if name not in LEFT_OUT and value is not None}
    return own | {name: _flat(value) for name, value in event.about.items()}


def _flat(value: Any) -> Any:
    """Nested values as text; lists of texts stay lists."""
    if isinstance(value, Mapping):
        return [f"{name}: {_flat(each)}" for name, each in value.items()]
    if isinstance(value, list):
        return [str(_flat(each)) for each in value]
    return value


def ask(cluster: WatchedCluster, params: Params, query: Mapping[str, str]) -> dict[str, Any]:
    wire = cluster.own(Wire)
    if not wire.address:
        raise SubjectNotFound(
            "no tap runs beside this workbench\n\nhint: `fencepost web --tap 127.0.0.1:9093` starts one"
        )
    return tap_document(wire.address, wire.last(), query.get("search", ""))


PAGE = Page(
    path="/tap",
    script="tap.js",
    option="--tap HOST:PORT",
    title="On the wire",
    nav="Wire",
    ask=ask,
    needs_cluster=False,
)
