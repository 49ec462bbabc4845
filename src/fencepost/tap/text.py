"""An event of the tap as one line: time, connection, client, direction, API, transaction, what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from fencepost.counting import counted
from fencepost.printable import printable
from fencepost.tap.decoding import WireEvent

ARROWS = {"request": "->", "reply": "<-", "unanswered": "--"}
SHOWN_PARTITIONS = 4
Style = Callable[[str, str], str]  # A text and what it means -> the text as it is shown.


_FIELDS = tuple(f.name for f in fields(WireEvent))


def document_of(event: WireEvent) -> dict[str, Any]:
    """The event as JSON values."""
    return {name: getattr(event, name) for name in _FIELDS}


def plain(text: str, _meaning: str) -> str:
    return text


def line_of(event: WireEvent, style: Style = plain) -> str:
    who = "" if event.producer_id is None else f" {event.producer_id}/{event.producer_epoch}"
    parts = [
        _time(event.at_us),
        f"#{event.connection}",
        printable(event.client_id) or event.client,
        ARROWS[event.kind],
        f"{event.api} v{event.version}",
        f"{printable(event.transactional_id or '')}{who}".strip(),
        said_by(event, style),
    ]
    if event.fault is not None:
        parts.append(style(f"[{event.fault}]", "fault"))
    return "  ".join(part for part in parts if part)


def _time(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1_000_000, UTC).strftime("%H:%M:%S.%f")


def said_by(event: WireEvent, style: Style = plain) -> str:
    """What the message says, without its head."""
    if event.kind == "unanswered":
        return style("no reply: the connection ended", "error")
    words = list(_words(event.about, style))
    if event.kind == "reply":
        if event.error is not None:
            words.insert(0, style(event.error, "ok" if event.error == "NONE" else "error"))
        if event.duration_us is not None:
            words.append(f"{event.duration_us / 1000:.1f} ms")
    return "  ".join(words)


def _words(about: dict[str, Any], style: Style) -> Iterable[str]:
    if "committed" in about:
        yield style("commit", "committed") if about["committed"] else style("abort", "aborted")
    if "group_id" in about:
        yield f"group {printable(about['group_id'])}"
    if "transaction_timeout_ms" in about:
        yield f"timeout {about['transaction_timeout_ms']} ms"
    if "next_producer_epoch" in about:
        yield f"next {about['next_producer_id']}/{about['next_producer_epoch']}"
    for place in about.get("coordinators", ()):
        yield f"node {place['node_id']} at {printable(place['host'])}:{place['port']}"
    for marker in about.get("markers", ()):
        outcome = style("commit", "committed") if marker["committed"] else style("abort", "aborted")
        yield f"{outcome} {marker['producer_id']}/{marker['producer_epoch']} {_few(marker['partitions'])}"
    if "isolation" in about:
        yield about["isolation"]
    errors = about.get("errors", {})
    offsets = about.get("offsets") or about.get("base_offsets")
    if offsets:
        yield _few([f"{where}@{offset}" for where, offset in offsets.items()])
    elif isinstance(about.get("partitions"), dict):
        yield _few([f"{where} {_limit(p)}" for where, p in about["partitions"].items()])
    elif about.get("partitions"):
        yield _few(about["partitions"]) + (" ..." if about.get("has_more_partitions") else "")
    if "records" in about:
        yield counted(about["records"], "record")
    if errors:
        yield _few([f"{where} {name}" for where, name in errors.items()])
    if "malformed" in about:
        yield style(printable(about["malformed"]), "error")


def _limit(fetched: dict[str, Any]) -> str:
    """How far a reader gets. Apache Kafka tells read_uncommitted readers no last stable offset."""
    lso = fetched["last_stable_offset"]
    return f"lso {lso}" if lso >= 0 else f"high watermark {fetched['high_watermark']}"


def _few(names: list[str]) -> str:
    rest = len(names) - SHOWN_PARTITIONS
    return printable(", ".join(names[:SHOWN_PARTITIONS])) + (f" and {rest} more" if rest > 0 else "")
