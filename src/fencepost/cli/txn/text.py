"""The documents of `fencepost txn` as blocks of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fencepost.cli.output import Block, Fields, Paragraph, Table
from fencepost.client.admin.answers import NamedPartition
from fencepost.counting import counted
from fencepost.diagnose.explain.explanation import Explanation
from fencepost.diagnose.hanging import HangingReport, ProducerList
from fencepost.diagnose.history import History
from fencepost.diagnose.lso import LsoReport, Pin
from fencepost.diagnose.orders import Ended
from fencepost.diagnose.txns import TxnDescription, TxnList
from fencepost.diagnose.words import duration, instant, listed, percent

ORPHAN = "(hangs)"
RESULTS = {None: "(in flight)", "NONE": "ok"}


def _duration(ms: int | None) -> str | None:
    return duration(ms) if ms is not None else None


def _instant(ms: int | None) -> str | None:
    return instant(ms) if ms is not None else None


def _percent(share: float | None) -> str | None:
    return percent(share) if share is not None else None


def _places(partitions: Iterable[NamedPartition]) -> str | None:
    return ", ".join(map(str, partitions)) or None


def txns(document: TxnList) -> Iterator[Block]:
    shows_idle = any(row.idle_ms is not None for row in document.transactions)
    yield Table(
        (
            *("TRANSACTIONAL ID", "STATE", "PRODUCER", "EPOCH", "COORDINATOR"),
            *("OPEN FOR", "OF TIMEOUT", "PARTITIONS"),
            *(("LAST USED",) if shows_idle else ()),
        ),
        [
            (
                *(row.transactional_id, row.state, row.producer_id, row.producer_epoch, row.coordinator),
                *(_duration(row.age_ms), _percent(row.timeout_share), row.partition_count),
                *((f"{duration(row.idle_ms)} ago" if row.idle_ms is not None else None,) if shows_idle else ()),
            )
            for row in document.transactions
        ],
        optional=("COORDINATOR", "EPOCH", "PRODUCER", "PARTITIONS", "OF TIMEOUT"),
    )


def description(document: TxnDescription) -> Iterator[Block]:
    age = None
    if document.age_ms is not None:
        share = f", {percent(document.timeout_share)} of its timeout" if document.timeout_share is not None else ""
        age = f"{duration(document.age_ms)}{share}"
    yield Fields(
        [
            ("transactional id", document.transactional_id),
            ("state", document.state),
            ("coordinator", f"broker {document.coordinator}"),
            ("producer id", document.producer_id),
            ("producer epoch", document.producer_epoch),
            ("timeout", duration(document.timeout_ms)),
            ("began", _instant(document.start_ms)),
            ("open for", age),
            ("last recorded", _instant(document.updated_ms)),
            ("previous producer id", document.previous_producer_id),
            ("next producer id", document.next_producer_id),
            ("client transaction version", document.client_transaction_version),
            ("partitions", len(document.partitions)),
        ]
    )
    if document.partitions:
        yield Table(
            ("PARTITION", "ITS FIRST OFFSET", "LAST WRITE", "LAST STABLE OFFSET", "HIGH WATERMARK"),
            [
                (
                    NamedPartition(row.topic, row.partition),
                    row.txn_start_offset,
                    _instant(row.last_write_ms),
                    row.last_stable_offset,
                    row.high_watermark,
                )
                for row in document.partitions
            ],
            optional=("HIGH WATERMARK", "LAST WRITE"),
        )


def history(document: History) -> Iterator[Block]:
    yield Table(
        ("OFFSET", "TIME", "STATE", "PRODUCER", "EPOCH", "TIMEOUT", "PARTITIONS", "WHAT HAPPENED"),
        [
            (
                *(t.offset, instant(t.at_ms), t.state, t.producer_id, t.producer_epoch),
                *(_duration(t.timeout_ms), _places(t.partitions), t.what),
            )
            for t in document.transitions
        ],
        prose=("PARTITIONS", "WHAT HAPPENED"),
        optional=("TIMEOUT", "OFFSET", "PRODUCER", "PARTITIONS", "EPOCH"),
    )
    if document.rpcs is not None:
        yield Table(
            ("TIME", "REQUEST", "ABOUT", "PRODUCER", "EPOCH", "RESULT", "TOOK", "CLIENT", "ADDRESS"),
            [
                (
                    *(instant(r.at_ms), f"{r.name} v{r.version}", r.about, r.producer_id, r.producer_epoch),
                    *(RESULTS.get(r.result, r.result), _microseconds(r.duration_us)),
                    *(r.client_id, f"{r.host}:{r.port}"),
                )
                for r in document.rpcs
            ],
            prose=("ABOUT",),
            optional=("TOOK", "ADDRESS", "PRODUCER", "EPOCH", "ABOUT"),
        )


def _microseconds(us: int | None) -> str | None:
    return None if us is None else f"{us / 1000:.1f} ms" if us < 1_000_000 else duration(us // 1000)


def producers(document: ProducerList) -> Iterator[Block]:
    yield Table(
        (
            *("PARTITION", "PRODUCER", "EPOCH", "LAST SEQUENCE", "LAST WRITE", "COORDINATOR EPOCH"),
            *("OPEN SINCE OFFSET", "TRANSACTIONAL ID", "STATE"),
        ),
        [
            (
                *(NamedPartition(row.topic, row.partition), row.producer_id, row.producer_epoch, row.last_sequence),
                f"{duration(row.idle_ms)} ago" if row.idle_ms is not None else None,
                *(row.coordinator_epoch, row.txn_start_offset, row.transactional_id, row.state),
            )
            for row in document.producers
        ],
        optional=("COORDINATOR EPOCH", "LAST SEQUENCE", "EPOCH", "LAST WRITE"),
    )


def lso(document: LsoReport) -> Iterator[Block]:
    yield Table(
        (
            *("PARTITION", "LAST STABLE OFFSET", "HIGH WATERMARK", "WAITING", "FOR"),
            *("TRANSACTIONAL ID", "PRODUCER", "EPOCH", "STATE", "TIMEOUT", "CLIENT"),
        ),
        [
            (
                *(NamedPartition(row.topic, row.partition), row.last_stable_offset, row.high_watermark, row.waiting),
                *(_duration(row.age_ms), row.transactional_id, row.producer_id, row.producer_epoch),
                *(ORPHAN if row.is_orphan else row.state, _duration(row.timeout_ms)),
                f"{row.client_id} at {row.host}" if row.host is not None else None,
            )
            for row in document.partitions
        ],
        optional=("CLIENT", "TIMEOUT", "EPOCH", "PRODUCER", "HIGH WATERMARK", "LAST STABLE OFFSET"),
    )
    if document.pins:
        yield Paragraph("\n".join(waits_for(pin) for pin in document.pins), is_bold=True)
    if document.groups:
        yield Table(
            (
                *("GROUP THAT WAITS", "PARTITION", "COMMITTED OFFSET"),
                *("LAG TO LSO", "LAG TO HIGH WATERMARK", "IN A TRANSACTION"),
            ),
            [
                (
                    *(group.group_id, NamedPartition(p.topic, p.partition), p.committed_offset),
                    *(lag_text(p.lag_to_lso), lag_text(p.lag_to_high_watermark), "yes" if p.is_pending else "no"),
                )
                for group in document.groups
                for p in group.partitions
            ],
            optional=("COMMITTED OFFSET",),
        )


def lag_text(lag: int | None, unknown_count: int = 0) -> str | int:
    """A lag, or a sum that lacks the lags of some partitions."""
    if lag is None:
        return "unknown"
    return f"{lag} or more" if unknown_count else lag


def name_of(pin: Pin) -> str:
    producer = f"producer {pin.producer_id}"
    return f"`{pin.transactional_id}` ({producer})" if pin.transactional_id is not None else producer


def waits_for(pin: Pin) -> str:
    """The offsets that wait, the transaction that they wait for, and the commands to run next."""
    since = f" for {duration(pin.age_ms)}" if pin.age_ms is not None else ""
    waiting = f"{counted(pin.waiting, 'offset')} on {listed(pin.partitions)}"
    said = f"{waiting} {'waits' if pin.waiting == 1 else 'wait'} for {name_of(pin)}{since}"
    if pin.is_orphan:
        said += ", which hangs: its coordinator does not know it. This ends it:"
    return "\n".join([said if pin.is_orphan or not pin.commands else f"{said}:", *(f"  {c}" for c in pin.commands)])


def hanging(document: HangingReport) -> Iterator[Block]:
    yield Table(
        ("PARTITION", "PRODUCER", "EPOCH", "SINCE OFFSET", "LAST WRITE", "TRANSACTIONAL ID", "WHY IT HANGS"),
        [
            (
                *(h.where, h.producer_id, h.producer_epoch, h.start_offset),
                f"{duration(h.age_ms)} ago" if h.age_ms is not None else None,
                *(h.transactional_id, h.why),
            )
            for h in document.hanging
        ],
        prose=("WHY IT HANGS",),
        optional=("EPOCH", "LAST WRITE", "SINCE OFFSET"),
    )
    if document.hanging:
        commands = "\n".join(f"  {h.abort_command}" for h in document.hanging)
        yield Paragraph(f"No coordinator will end these transactions. To abort them:\n{commands}")


def explanation(document: Explanation) -> Iterator[Block]:
    advice = "\n".join(
        f"- {action.advice}" + (f":\n    {action.command}" if action.command else "") for action in document.actions
    )
    yield Fields([*((finding.label, finding.text) for finding in document.findings), ("what to do", advice)])


def ended(document: Ended) -> Iterator[Block]:
    yield Paragraph(document.summary)
    if document.partitions:
        yield Table(
            ("PARTITION", "LAST STABLE OFFSET BEFORE", "NOW", "HIGH WATERMARK"),
            [
                (
                    NamedPartition(p.topic, p.partition),
                    p.last_stable_offset_before,
                    p.last_stable_offset,
                    p.high_watermark,
                )
                for p in document.partitions
            ],
        )
