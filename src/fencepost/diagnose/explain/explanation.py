"""The document of `fencepost txn explain`, with what may be wrong in any state: a hanging transaction, a shared id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.commands import alter_config, command
from fencepost.diagnose.explain.closed import explain_closed, explain_unknown
from fencepost.diagnose.explain.findings import (
    HANGING,
    HOLDS_OFFSETS,
    NO_FINDINGS,
    NOTHING_TO_DO,
    SUSPICION,
    Action,
    Blocked,
    Cause,
    Finding,
    Findings,
    offsets_behind,
    what_it_blocks,
    which_groups,
)
from fencepost.diagnose.explain.ongoing import deadline_ms, explain_decided, explain_ongoing
from fencepost.diagnose.hanging import HangingTxn, hanging_of
from fencepost.diagnose.history import RpcRow, find_duel, rpc_row
from fencepost.diagnose.lso import AffectedGroup, affected_groups
from fencepost.diagnose.snapshot import OFFSETS_TOPIC, OpenTxn, TxnSnapshot, is_decided
from fencepost.diagnose.txns import age_of
from fencepost.diagnose.words import SHOWN_AT_MOST, duration, listed
from fencepost.machines.txn.states import ONGOING


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    now_ms: int
    transactional_id: str
    # None: no coordinator knows the id.
    state: str | None
    age_ms: int | None
    # The most serious of `causes`.
    cause: Cause
    causes: tuple[Cause, ...]
    # When its coordinator aborts the open transaction; None if none is open, or if it has no timeout.
    deadline_ms: int | None
    # None if the brokers do not remember requests.
    last_request: RpcRow | None
    # All findings as one text.
    paragraph: str
    findings: tuple[Finding, ...]
    blocks: tuple[Blocked, ...]
    hanging: tuple[HangingTxn, ...]
    # Transactions that hang under no transactional id that is known: they may be of this one.
    hanging_nameless: tuple[OpenTxn, ...]
    affected_groups: tuple[AffectedGroup, ...]
    actions: tuple[Action, ...]
    # What is not known about groups.
    warnings: tuple[str, ...]
    problems: tuple[str, ...]


def diagnose_txn(snapshot: TxnSnapshot) -> Explanation:
    txn = snapshot.txn
    blocks = what_it_blocks(snapshot)
    hanging = hanging_of(snapshot)
    groups = affected_groups(snapshot.groups, snapshot.ends, {b.where for b in blocks})
    # Hanging transactions come first: readers wait for them for ever.
    found = explain_hanging(hanging, blocks)
    nameless = explain_nameless(snapshot)
    duel = explain_duel(snapshot)
    if txn is None:
        found = _with(found, NO_FINDINGS, explain_unknown(snapshot), nameless)
    elif txn.state == ONGOING.kafka_name:
        found = _with(found, duel, explain_ongoing(snapshot, txn, blocks), nameless)
    elif is_decided(txn.state):
        found = _with(found, duel, explain_decided(snapshot, txn, blocks), nameless)
    else:
        is_all_well = not hanging and not nameless.findings and not duel.findings
        found = _with(found + nameless, duel, explain_closed(snapshot, txn, is_all_well))
    findings = (*found.findings, *which_groups(groups))
    return Explanation(
        now_ms=snapshot.now_ms,
        transactional_id=snapshot.transactional_id,
        state=txn.state if txn is not None else None,
        age_ms=age_of(txn, snapshot.now_ms) if txn is not None else None,
        cause=found.causes[0],
        causes=found.causes,
        deadline_ms=deadline_ms(txn) if txn is not None and txn.state == ONGOING.kafka_name else None,
        last_request=rpc_row(snapshot.rpcs[-1]) if snapshot.rpcs else None,
        paragraph=" ".join(finding.text for finding in findings),
        findings=findings,
        blocks=blocks,
        hanging=hanging,
        hanging_nameless=snapshot.nameless,
        affected_groups=groups,
        actions=found.actions,
        warnings=snapshot.warnings,
        problems=snapshot.problems,
    )


def _with(hanging: Findings, duel: Findings, of_state: Findings, nameless: Findings = NO_FINDINGS) -> Findings:
    """The findings of a duel come after those of the state, its actions first: no other action ends a duel."""
    urgent = duel.actions + hanging.actions + nameless.actions
    return Findings(
        hanging.findings + of_state.findings + duel.findings + nameless.findings,
        urgent + tuple(action for action in of_state.actions if action is not NOTHING_TO_DO or not urgent),
        hanging.causes + duel.causes + of_state.causes + nameless.causes,
    )


REGISTRATION = "InitProducerId"


def explain_hanging(hanging: Sequence[HangingTxn], blocks: Sequence[Blocked]) -> Findings:
    if not hanging:
        return Findings()
    places = listed(f"{h.where} (producer {h.producer_id}, from offset {h.start_offset})" for h in hanging)
    behind = [b for b in blocks if b.is_hanging and b.topic != OFFSETS_TOPIC]
    waits = f" {offsets_behind(behind)}." if behind else ""
    if any(h.topic == OFFSETS_TOPIC for h in hanging):
        waits += f" {HOLDS_OFFSETS}"
    text = (
        f"A transaction of this id hangs on {places}: it is open there, and its coordinator does not know it. No "
        f"timeout ends it, and neither a restart of its process nor `fencepost txn fence` does.{waits}"
    )
    actions = tuple(
        Action(advice=f"end what hangs on {h.where}, which lets its readers continue", command=h.abort_command)
        for h in hanging
    )
    return Findings((Finding(HANGING, text),), actions, (Cause.HANGING,))


def explain_nameless(snapshot: TxnSnapshot) -> Findings:
    """Transactions under no known id: they may be of this one, whose earlier producer ids its log no longer shows."""
    if not snapshot.nameless:
        return Findings()
    places = listed(f"{open_.where} (producer {open_.producer_id})" for open_ in snapshot.nameless)
    text = (
        f"Transactions hang on {places} under producer ids that no transactional id has: they may be of an earlier "
        "producer of this id."
    )
    action = Action(advice="see what hangs, and how to end it", command=command("txn", "hanging"))
    return Findings((Finding(HANGING, text),), (action,), (Cause.HANGING_NAMELESS,))


def explain_duel(snapshot: TxnSnapshot) -> Findings:
    duel = find_duel(snapshot.history or (), snapshot.now_ms)
    if duel is None:
        return Findings()
    text = (
        f"{duel.registrations} producers registered the id within {duration(duel.last_ms - duel.first_ms)}, the last "
        f"one {duration(snapshot.now_ms - duel.last_ms)} ago: probably two processes share the id and fence each "
        "other, or one process restarts again and again."
    )
    rivals = registering_clients(snapshot)
    actions: tuple[Action, ...] = ()
    if len(rivals) > 1:
        advice = (
            f"leave the id to one of these clients and stop the other, or give each its own transactional.id: "
            f"{'; '.join(rivals[:SHOWN_AT_MOST])}"
        )
    elif rivals:
        advice = f"look at {rivals[0]}: it registers the id again and again; leave the id to one process"
    else:
        advice = "find the processes that use this transactional.id, and leave it to one of them"
        if snapshot.rpcs is None:
            advice += (
                ". This cluster does not remember who registered it, but each process that was fenced has "
                "PRODUCER_FENCED or INVALID_PRODUCER_EPOCH in its own log, or ProducerFencedException"
            )
            actions = _let_coordinator_log(snapshot)
    return Findings((Finding(SUSPICION, text),), (Action(advice=advice), *actions), (Cause.DUEL,))


def _let_coordinator_log(snapshot: TxnSnapshot) -> tuple[Action, ...]:
    """How the request log of Apache Kafka names the clients."""
    if snapshot.coordinator is None:
        return ()
    logger = ("--entity-type", "broker-loggers", "--entity-name", str(snapshot.coordinator))
    return (
        Action(
            advice=f"if you do not know the processes, let broker {snapshot.coordinator}, the coordinator of the id, "
            "log its requests. Lines of its kafka-request.log with INIT_PRODUCER_ID and the id have the client.id, and "
            "under `connection` the address",
            command=alter_config(logger, "kafka.request.logger=DEBUG"),
        ),
        Action(
            advice="after a minute, end that: the broker logs every request meanwhile",
            command=alter_config(logger, "kafka.request.logger=WARN"),
        ),
    )


def registering_clients(snapshot: TxnSnapshot) -> list[str]:
    """The clients that registered the id, the last one first; none if the brokers do not remember requests.

    Two processes may have host and `client.id` in common, as copies of one service on one machine do. Their ports tell
    them apart.
    """
    ports: dict[tuple[str | None, str], dict[int, None]] = {}
    for rpc in reversed(snapshot.rpcs or ()):
        if rpc.name == REGISTRATION:
            ports.setdefault((rpc.client_id, rpc.host), {})[rpc.port] = None
    return [
        f"client `{client_id or ''}` at {host}, {'port' if len(found) == 1 else 'ports'} {listed(found)}"
        for (client_id, host), found in ports.items()
    ]
