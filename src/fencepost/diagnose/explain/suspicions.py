"""Possible problems of a transactional id in any state: a transaction that hangs, two processes that share the id."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.commands import alter_config, command
from fencepost.diagnose.duels import find_duel
from fencepost.diagnose.explain.findings import HANGING, SUSPICION, Action, Cause, Finding, Findings
from fencepost.diagnose.explain.readers import HOLDS_OFFSETS, Blocked, offsets_behind
from fencepost.diagnose.hanging import HangingTxn
from fencepost.diagnose.snapshot import OFFSETS_TOPIC, TxnSnapshot
from fencepost.diagnose.words import SHOWN_AT_MOST, duration, listed

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
