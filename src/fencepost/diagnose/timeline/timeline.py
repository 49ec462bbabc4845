"""Puts the steps of one round together: records of the coordinator, batches, markers, requests, and readers.

The records of the coordinator come in the order of their log. Every other step comes after one of them: a batch after
the record that added its partition, a marker after the decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.client.admin.answers import NamedPartition, Rpc
from fencepost.diagnose.errors.table import TABLE
from fencepost.diagnose.explain.findings import what_it_blocks
from fencepost.diagnose.history import Abort
from fencepost.diagnose.snapshot import OFFSETS_TOPIC, TxnSnapshot, is_decided
from fencepost.diagnose.timeline.records import (
    PRODUCE,
    Requests,
    added_by,
    implied_request,
    look_of,
    request_behind,
    sent_by,
    why_it_aborts,
)
from fencepost.diagnose.timeline.rounds import (
    Owner,
    Recorded,
    Round,
    RoundBatches,
    RoundOutcome,
    SeenBatch,
    batches_of,
    choose,
    owner_with,
    owners_of,
    rounds_of,
)
from fencepost.diagnose.timeline.steps import (
    Lane,
    LaneKind,
    Look,
    Source,
    Step,
    batch_source,
    ends_source,
    record_source,
    request_source,
)
from fencepost.diagnose.timeline.written import data_step, grouped, lane_of, marker_step, span_of
from fencepost.diagnose.words import duration, listed
from fencepost.machines.txn.states import COMPLETE_COMMIT, EMPTY, ONGOING
from fencepost.protocol import errors

COORDINATOR, READERS = "coordinator", "readers"
# The lane of requests by producers that the log no longer shows.
EARLIER = "producer before"
LANES_SHOWN = 12
# The answers to a producer whose epoch is over, or whose transaction has ended.
LATE = frozenset(
    {
        errors.PRODUCER_FENCED,
        errors.INVALID_PRODUCER_EPOCH,
        errors.INVALID_PRODUCER_ID_MAPPING,
        errors.INVALID_TXN_STATE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineSnapshot:
    """One transactional id, and the batches around one of its rounds."""

    txn: TxnSnapshot
    # The partition of `__transaction_state` that has its records.
    log: NamedPartition | None = None
    # The key of the round that was asked for; None for the last one.
    round_key: int | None = None
    # Batches of the producer ids of this id, in the order of the log.
    batches: Mapping[NamedPartition, tuple[SeenBatch, ...]] = field(default_factory=dict)
    # What could not be read.
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRow:
    """A round in the list of all rounds."""

    key: int
    first_ms: int
    last_ms: int
    outcome: RoundOutcome
    producer_id: int | None
    producer_epoch: int | None
    partition_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    rounds: tuple[RoundRow, ...]
    # The key of the round that is shown; None if the id has no record.
    shown: int | None
    # The state before this round, and the states that the id went through in it.
    way: tuple[str, ...]
    lanes: tuple[Lane, ...]
    steps: tuple[Step, ...]
    # Partitions of the round that have no lane, because there are too many.
    partitions_left_out: int
    # Whether the brokers remember requests.
    remembers_requests: bool
    problems: tuple[str, ...]


class Placed(NamedTuple):
    """A step and its place: after which record of the round, and where among the other steps there."""

    after_record: int
    at_ms: int
    rank: int
    step: Step


def partitions_shown(round_: Round) -> tuple[NamedPartition, ...]:
    """The partitions that get a lane: those of data first; with too many, those with `__consumer_offsets` stay."""
    offsets = [where for where in round_.partitions if where.topic == OFFSETS_TOPIC][:LANES_SHOWN]
    data = [where for where in round_.partitions if where.topic != OFFSETS_TOPIC]
    return (*data[: LANES_SHOWN - len(offsets)], *offsets)


def diagnose_timeline(snapshot: TimelineSnapshot) -> Timeline:
    rounds = rounds_of(snapshot.txn.history or ())
    round_ = choose(rounds, snapshot.round_key)
    if round_ is None:
        return Timeline(
            rounds=(),
            shown=None,
            way=(),
            lanes=(),
            steps=(),
            partitions_left_out=0,
            remembers_requests=snapshot.txn.rpcs is not None,
            problems=snapshot.problems,
        )
    drawing = _Drawing(snapshot, rounds, round_)
    steps = drawing.steps()
    return Timeline(
        rounds=tuple(map(_row, rounds)),
        shown=round_.key,
        way=_way(round_),
        lanes=drawing.lanes(steps),
        steps=steps,
        partitions_left_out=len(round_.partitions) - len(partitions_shown(round_)),
        remembers_requests=snapshot.txn.rpcs is not None,
        problems=snapshot.problems,
    )


def _way(round_: Round) -> tuple[str, ...]:
    before = round_.records[0].before
    came_from = (before.state.kafka_name,) if before is not None else ()
    return (*came_from, *(record.transition.state for record in round_.records))


def _row(round_: Round) -> RoundRow:
    txn = round_.began or next((r.txn for r in round_.records if r.txn is not None), None)
    return RoundRow(
        key=round_.key,
        first_ms=round_.first_ms,
        last_ms=round_.last_ms,
        outcome=round_.outcome,
        producer_id=txn.producer_id if txn is not None else None,
        producer_epoch=txn.producer_epoch if txn is not None else None,
        partition_count=len(round_.partitions),
    )


class _Drawing:
    """One round, and what is needed to draw it."""

    def __init__(self, snapshot: TimelineSnapshot, rounds: Sequence[Round], round_: Round) -> None:
        self._snapshot = snapshot
        self._txn = snapshot.txn
        self._round = round_
        self._owners = owners_of(self._txn.history or ())
        self._requests = Requests(self._txn.rpcs or (), self._txn.now_ms)
        self._partitions = partitions_shown(round_)
        self._requests_by_record = {
            record.entry.offset: request_behind(record, self._requests) for r in rounds for record in r.records
        }
        at = rounds.index(round_)
        self._from_ms = round_.records[0].transition.at_ms if at else None
        self._before_ms = rounds[at + 1].first_ms if at + 1 < len(rounds) else None

    # --- all steps ------------------------------------------------------------------------------------------

    def steps(self) -> tuple[Step, ...]:
        placed = list(self._record_steps())
        found = {where: self._batches_on(where) for where in self._partitions}
        for where, batches in found.items():
            placed += self._batch_steps(where, batches)
        placed += self._late_writes()
        placed += self._reader_steps(found)
        placed += self._request_steps()
        return tuple(p.step for p in sorted(placed, key=lambda p: p[:3]))

    def lanes(self, steps: Sequence[Step]) -> tuple[Lane, ...]:
        used = {step.lane for step in steps} | {step.sender for step in steps}
        owners = {owner.key: owner for owner in self._owners if owner.key in used}
        producers = [owner for owner in owners.values() if not owner.is_operator]
        lanes = [_owner_lane(owner, len(producers) == 1) for owner in owners.values()]
        if EARLIER in used:
            lanes.insert(0, Lane(key=EARLIER, kind=LaneKind.PRODUCER, title="earlier producer"))
        lanes.append(Lane(key=COORDINATOR, kind=LaneKind.COORDINATOR, title="coordinator"))
        places = dict.fromkeys([*self._partitions, *(s.where for s in _sources(steps) if s.where is not None)])
        for where in places:
            if lane_of(where) in used or where in self._partitions:
                kind = LaneKind.OFFSETS if where.topic == OFFSETS_TOPIC else LaneKind.PARTITION
                lanes.append(Lane(key=lane_of(where), kind=kind, title=str(where)))
        lanes.append(Lane(key=READERS, kind=LaneKind.READERS, title="readers"))
        return tuple(lanes)

    # --- the records of the coordinator ---------------------------------------------------------------------

    def _record_steps(self) -> Iterator[Placed]:
        for n, record in enumerate(self._round.records):
            yield Placed(n, 0, 0, self._record_step(record))

    def _record_step(self, record: Recorded) -> Step:
        txn, transition = record.txn, record.transition
        rpc = self._requests_by_record[record.entry.offset]
        sender = sent_by(record, rpc)
        sentence = transition.what
        if rpc is not None and why_it_aborts(record) is Abort.CLIENT_OR_TAKEOVER:
            sentence += f" (the broker remembers the {rpc.name} request)"
        return Step(
            key=f"record {record.entry.offset}",
            at_ms=transition.at_ms,
            name=transition.state,
            look=look_of(record),
            lane=COORDINATOR,
            sender=self._owner(sender.producer_id, sender.producer_epoch) if sender is not None else None,
            request=rpc.name if rpc is not None else implied_request(record),
            state=transition.state,
            producer_id=txn.producer_id if txn is not None else None,
            producer_epoch=txn.producer_epoch if txn is not None else None,
            sentence=sentence,
            sources=(
                record_source(self._snapshot.log, record.entry),
                *([request_source(rpc)] if rpc is not None else ()),
            ),
        )

    def _owner(self, producer_id: int, producer_epoch: int) -> str:
        owner = owner_with(self._owners, producer_id, producer_epoch)
        return owner.key if owner is not None else EARLIER

    # --- batches and markers --------------------------------------------------------------------------------

    def _batches_on(self, where: NamedPartition) -> RoundBatches:
        began = self._round.began or self._round.prepared
        txn = self._txn.txn
        open_from = None
        lacks_marker = False
        if self._round.is_last and began is not None and txn is not None and where in txn.partitions:
            lacks_marker = is_decided(txn.state)
            open_from = next(
                (
                    p.txn_start_offset
                    for p in self._txn.producers.get(where, ())
                    if p.producer_id == began.producer_id and p.txn_start_offset >= 0
                ),
                None,
            )
        return batches_of(self._round, self._snapshot.batches.get(where, ()), open_from, lacks_marker)

    def _batch_steps(self, where: NamedPartition, batches: RoundBatches) -> Iterator[Placed]:
        added = next((n for n in range(len(self._round.records)) if where in added_by(self._round.records[n])), 0)
        marker_ms = batches.marker.header.max_timestamp if batches.marker is not None else None
        requests = self._requests.behind_batches(where, batches.data)
        for group in grouped(batches.data):
            first = group[0].header
            rpc = requests.get(first.base_offset) if len(group) == 1 else None
            at_ms = self._moment_of(group[-1], added, marker_ms, rpc)
            sender = self._owner(first.producer_id, first.producer_epoch)
            step = data_step(where, group, at_ms, sender, rpc, batches.marker)
            yield Placed(self._last_open_record(added, at_ms), at_ms, 2, step)
        if batches.marker is not None:
            decided = next((n for n, r in enumerate(self._round.records) if r.txn is self._round.prepared), 0)
            step = marker_step(where, batches, COORDINATOR)
            yield Placed(decided, step.at_ms, 3, step)

    def _moment_of(self, batch: SeenBatch, added: int, marker_ms: int | None, rpc: Rpc | None) -> int:
        """When a batch was written: its producer chose the timestamp, which may be years old."""
        if rpc is not None:
            return rpc.at_ms
        earliest = self._round.records[added].transition.at_ms
        latest = marker_ms if marker_ms is not None else self._txn.now_ms
        return max(earliest, min(batch.header.max_timestamp, latest))

    def _last_open_record(self, added: int, at_ms: int) -> int:
        """The last record before the decision that was written before this moment.

        Of two in the same millisecond, the write comes first: its producer added the next partition afterwards.
        """
        found = added
        for n, (_, transition, *_) in enumerate(self._round.records):
            if n > added and transition.state == ONGOING.kafka_name and transition.at_ms < at_ms:
                found = n
        return found

    def _late_writes(self) -> Iterator[Placed]:
        """Records that are open on a partition and that the coordinator does not know: written after the end."""
        if not self._round.is_last:
            return
        for open_ in sorted(self._txn.leftovers):
            batches = [
                batch
                for batch in self._snapshot.batches.get(open_.where, ())
                if batch.header.producer_id == open_.producer_id and batch.header.base_offset >= open_.start_offset
            ]
            last_ms = self._txn.now_ms
            sentence = (
                f"a late write on {open_.where} from offset {open_.start_offset} on, after the end of its transaction: "
                "it is open there, and its coordinator does not know it, so that no timeout ends it"
            )
            step = Step(
                key=f"late {open_.where} {open_.start_offset}",
                at_ms=batches[0].header.max_timestamp if batches else last_ms,
                name="late write",
                look=Look.LATE,
                lane=lane_of(open_.where),
                sender=self._owner(open_.producer_id, open_.producer_epoch),
                request=PRODUCE,
                state=None,
                producer_id=open_.producer_id,
                producer_epoch=open_.producer_epoch,
                sentence=sentence,
                sources=tuple(batch_source(open_.where, batch) for batch in batches[:1]),
            )
            yield Placed(len(self._round.records) - 1, last_ms, 2, step)

    # --- requests that changed nothing ----------------------------------------------------------------------

    def _request_steps(self) -> Iterator[Placed]:
        for rpc in self._requests.rest(self._from_ms, self._before_ms):
            after = 0
            for n, record in enumerate(self._round.records):
                after = n if record.transition.at_ms <= rpc.at_ms else after
            yield Placed(after, rpc.at_ms, 1, self._request_step(rpc))

    def _request_step(self, rpc: Rpc) -> Step:
        sender = self._sender_of(rpc)
        lane = next((lane_of(w) for w in self._partitions if rpc.name == PRODUCE and rpc.about == str(w)), COORDINATOR)
        if rpc.duration_us < 0:
            look = Look.WAITING
            sentence = f"{rpc.name} ({rpc.about}) is not answered yet, after {duration(self._txn.now_ms - rpc.at_ms)}"
        elif rpc.error_code:
            look = Look.LATE if rpc.error_code in LATE else Look.REFUSED
            meaning = TABLE[rpc.error_code].meaning if rpc.error_code in TABLE else ""
            sentence = f"{rpc.name} ({rpc.about}) is refused with {errors.name_of(rpc.error_code)}: {meaning}"
        else:
            look = Look.PLAIN
            sentence = f"{rpc.name} ({rpc.about}) is answered without an error, and changes nothing"
        return Step(
            key=f"request {rpc.at_ms} {rpc.name} {rpc.port} {rpc.about}",
            at_ms=rpc.at_ms,
            name=rpc.name,
            look=look,
            lane=lane,
            sender=sender,
            request=rpc.name,
            state=None,
            producer_id=rpc.producer_id if rpc.producer_id >= 0 else None,
            producer_epoch=rpc.producer_epoch if rpc.producer_epoch >= 0 else None,
            sentence=sentence,
            sources=(request_source(rpc),),
        )

    def _sender_of(self, rpc: Rpc) -> str | None:
        if rpc.producer_id >= 0:
            return self._owner(rpc.producer_id, rpc.producer_epoch)
        # InitProducerId of a new producer names no id: it is the one that registers next.
        entries = self._txn.history or ()
        later = [e.txn for e in entries if e.txn is not None and e.txn.state is EMPTY and e.txn.updated_ms >= rpc.at_ms]
        return self._owner(later[0].producer_id, later[0].producer_epoch) if later else None

    # --- readers --------------------------------------------------------------------------------------------

    def _reader_steps(self, found: Mapping[NamedPartition, RoundBatches]) -> Iterator[Placed]:
        """What the round means for read_committed readers: one step at its end, or now."""
        if self._round.is_last and self._round.completed is None:
            blocks = [b for b in what_it_blocks(self._txn) if b.topic != OFFSETS_TOPIC and not b.is_hanging]
            if blocks:
                places = listed(f"{b.where} at offset {b.last_stable_offset} ({b.waiting} behind)" for b in blocks)
                sentence = f"readers with read_committed wait on {places}"
                yield self._reader_step(
                    Look.OPEN, "readers wait", sentence, self._txn.now_ms, [b.where for b in blocks]
                )
            return
        completed = self._round.completed
        data = {w: b for w, b in found.items() if b.data and b.marker is not None and w.topic != OFFSETS_TOPIC}
        if completed is None or not data:
            return
        is_commit = completed.state is COMPLETE_COMMIT
        places = listed(f"{where}, {span_of(b)}" for where, b in data.items())
        waits = [where for where, b in data.items() if self._is_unstable(where, b)]
        sentence = f"readers with read_committed {'get' if is_commit else 'skip'} the records: {places}"
        if waits:
            sentence += f"; on {listed(waits)} they wait for another transaction first"
        name = "readers get the records" if is_commit else "readers skip the records"
        look = Look.COMMITTED if is_commit else Look.ABORTED
        yield self._reader_step(look, name, sentence, completed.updated_ms, list(data))

    def _is_unstable(self, where: NamedPartition, batches: RoundBatches) -> bool:
        ends = self._txn.ends.get(where)
        return ends is not None and ends.last_stable_offset <= batches.data[-1].header.last_offset

    def _reader_step(
        self, look: Look, name: str, sentence: str, at_ms: int, places: Sequence[NamedPartition]
    ) -> Placed:
        completed = next((n for n, r in enumerate(self._round.records) if r.txn is self._round.completed), None)
        step = Step(
            key="readers",
            at_ms=at_ms,
            name=name,
            look=look,
            lane=READERS,
            sender=None,
            request=None,
            state=None,
            producer_id=None,
            producer_epoch=None,
            sentence=sentence,
            sources=tuple(ends_source(w, self._txn.ends[w]) for w in places if w in self._txn.ends),
        )
        return Placed(completed if completed is not None else len(self._round.records) - 1, at_ms, 4, step)


def _owner_lane(owner: Owner, is_only_one: bool) -> Lane:
    if owner.is_operator:
        return Lane(key=owner.key, kind=LaneKind.OPERATOR, title="operator")
    title = "producer" if is_only_one else f"producer, epoch {owner.first_epoch}"
    return Lane(key=owner.key, kind=LaneKind.PRODUCER, title=title)


def _sources(steps: Sequence[Step]) -> Iterator[Source]:
    for step in steps:
        if step.lane.startswith("partition "):
            yield from step.sources
