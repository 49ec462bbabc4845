"""The parts of an explanation: causes, findings (each with a label), actions, who waits, and the last request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from fencepost.client.admin.answers import DescribedTxn, NamedPartition
from fencepost.commands import Command
from fencepost.counting import counted
from fencepost.diagnose.lso import AffectedGroup, AffectedPartition
from fencepost.diagnose.snapshot import OFFSETS_TOPIC, OpenTxn, TxnSnapshot, first_open
from fencepost.diagnose.words import duration, listed
from fencepost.printable import Lines
from fencepost.protocol import errors

HANGING, GROUPS = "hanging", "groups that wait"
WHAT_HAPPENED, WHY, LAST_ACTIVITY, READERS = "what happened", "why", "last activity", "readers"
WHAT_IS_NEXT, SIMILAR = "what happens next", "similar ids"
SUSPICION = "suspicion"


class Cause(Enum):
    """Why a transaction is as it is, for programs; the name in lower case is the code in JSON."""

    HANGING = "it is open on a partition and unknown to its coordinator, so that no timeout ends it"
    HANGING_NAMELESS = "what hangs in the cluster has no transactional id, and may be of an earlier producer of this id"
    DUEL = "producers register the id again and again: probably two processes share it"
    OPEN = "its producer has neither committed nor aborted it yet"
    OVERDUE = "its timeout has passed, and its coordinator has not aborted it"
    MARKERS_UNDER_WAY = "it is decided, and its coordinator writes the markers"
    MARKERS_MISSING = "it was decided long ago, and not all markers are written"
    COMMITTED = "its last transaction was committed"
    ABORTED = "its last transaction was aborted, and the log does not show why"
    ABORTED_BY_CLIENT = "its client aborted its last transaction"
    ABORTED_BY_TIMEOUT = "its coordinator aborted its last transaction after the timeout"
    ABORTED_BY_TAKEOVER = "its coordinator aborted its last transaction for a new producer with the same id"
    ABORTED_BY_ORDER = "an operator ended its last transaction and fenced its producer"
    ABORTED_BY_CLIENT_OR_TAKEOVER = "its client or a new producer ended its last transaction: the log does not tell"
    REGISTERED = "its producer has begun no transaction since it registered"
    FENCED_BY_ORDER = "an operator fenced its producer, which had no open transaction"
    EXPIRED = "the id was removed because it had expired"
    UNKNOWN_ID = "its coordinator does not know the id"


@dataclass(frozen=True, slots=True)
class Finding:
    label: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What to do and in which case; some actions are a command."""

    advice: str
    command: Command | None = None


@dataclass(frozen=True, slots=True)
class Findings:
    findings: tuple[Finding, ...] = ()
    actions: tuple[Action, ...] = ()
    # The most serious first.
    causes: tuple[Cause, ...] = ()

    def __add__(self, other: Findings) -> Findings:
        return Findings(self.findings + other.findings, self.actions + other.actions, self.causes + other.causes)


NO_FINDINGS = Findings()
NOTHING_TO_DO = Action(advice="there is nothing to do")


def last_request(snapshot: TxnSnapshot) -> list[str]:
    if not snapshot.rpcs:
        return []
    rpc = snapshot.rpcs[-1]
    client = f"client `{rpc.client_id}`" if rpc.client_id else "a client"
    came = f"The last request for it was {rpc.name}, {duration(snapshot.now_ms - rpc.at_ms)} ago from {client}"
    if rpc.duration_us < 0:
        result = "is not answered yet"
    elif rpc.error_code:
        result = f"was answered with {errors.name_of(rpc.error_code)}"
    else:
        result = "was answered without an error"
    return [f"{came} at {rpc.host}:{rpc.port}, and {result}."]


HOLDS_OFFSETS = (
    "It commits offsets of a consumer group: until it ends, OffsetFetch is answered with UNSTABLE_OFFSET_COMMIT, and "
    "no new member of the group can start."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A partition whose last stable offset this transactional id holds."""

    topic: str
    partition: int
    last_stable_offset: int
    waiting: int
    # By a transaction that the coordinator does not know.
    is_hanging: bool

    @property
    def where(self) -> NamedPartition:
        return NamedPartition(self.topic, self.partition)


def what_it_blocks(snapshot: TxnSnapshot) -> tuple[Blocked, ...]:
    """The partitions on which a transaction of this id is the oldest open one, and readers wait behind it."""
    found = []
    mine, unknown = snapshot.producer_ids, snapshot.leftovers
    for where, ends in sorted(snapshot.ends.items()):
        pin = first_open(snapshot.producers.get(where, ()))
        if ends.gap > 0 and pin is not None and pin.producer_id in mine:
            open_ = OpenTxn(where, pin.producer_id, pin.producer_epoch, pin.txn_start_offset)
            blocked = Blocked(
                topic=where.topic,
                partition=where.partition,
                last_stable_offset=ends.last_stable_offset,
                waiting=ends.gap,
                is_hanging=open_ in unknown,
            )
            found.append(blocked)
    return tuple(found)


def what_waits(txn: DescribedTxn, blocks: Sequence[Blocked]) -> str:
    """Who waits for the transaction that the coordinator knows."""
    data = [b for b in blocks if b.topic != OFFSETS_TOPIC and not b.is_hanging]
    sentences = ["No reader waits for it at the moment."]
    if data:
        pinned = listed(b.where for b in data)
        sentences = [f"It pins the last stable offset of {pinned}: {offsets_behind(data)}."]
    if any(where.topic == OFFSETS_TOPIC for where in txn.partitions):
        sentences.append(HOLDS_OFFSETS)
    return " ".join(sentences)


def offsets_behind(blocks: Sequence[Blocked]) -> str:
    waiting = sum(b.waiting for b in blocks if b.topic != OFFSETS_TOPIC)
    return f"{counted(waiting, 'offset')} behind it cannot be read with read_committed"


def which_groups(groups: Sequence[AffectedGroup]) -> list[Finding]:
    if not groups:
        return []
    return [Finding(GROUPS, Lines.of(map(_group, groups)))]


def _group(group: AffectedGroup) -> str:
    return f"`{group.group_id}`: {listed(_lag(p) for p in group.partitions)}"


def _lag(p: AffectedPartition) -> str:
    pending = "an offset in a transaction; " if p.is_pending else ""
    if p.committed_offset is None:
        return f"{p.where} ({pending}no committed offset)"
    lag = f"lag {p.lag_to_lso} to the last stable offset, {p.lag_to_high_watermark} to the high watermark"
    return f"{p.where} ({pending}{lag})"
