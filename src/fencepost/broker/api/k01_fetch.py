"""Fetch (key 1), v4-18: read batches from partitions, waiting up to max_wait_ms for min_bytes.

v4 isolation level, LSO and aborted list; v5 log start offset; v7 sessions (KIP-227); v9 leader epochs; v12 flexible;
v13 topic ids; v16 the new leader (KIP-951). The response is encoded here: it is on the hot path, and records are never
copied into it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from fencepost.broker.cluster import Cluster
from fencepost.broker.fetches import FINAL_EPOCH, FetchSession, Wanted
from fencepost.broker.leaders import NO_TAGS, NewLeaders
from fencepost.broker.node import Context
from fencepost.machines.acl.acls import Operation, ResourceType
from fencepost.machines.log.interface import StorageFailed
from fencepost.machines.partition.partition import Fetched, Partition
from fencepost.protocol import errors
from fencepost.protocol.batch import Part
from fencepost.protocol.messages import FetchRequest
from fencepost.protocol.schema import NO_UUID, write_uvarint

_COUNT = struct.Struct(">i")
_SIZE = struct.Struct(">h")
_HEAD_V4 = struct.Struct(">i")
_HEAD_V7 = struct.Struct(">ihi")
_PARTITION_V4 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
NO_REPLICA = _COUNT.pack(-1)
FIRST_WITH_TOPIC_IDS = 13
FIRST_WITH_LEADERS = 16
LEADER_TAG = 1
# The errors of a client that has to ask another leader, or the same one in a later epoch.
OF_OLD_LEADER = (errors.NOT_LEADER_OR_FOLLOWER, errors.FENCED_LEADER_EPOCH)
READ_COMMITTED = 1
MAX_BYTES = 2**31 - 1


class Result(NamedTuple):
    wanted: Wanted
    fetched: Fetched


def handle(ctx: Context, req: FetchRequest) -> list[Part] | None:
    session, error = _session_of(ctx, req)
    if error:
        return _encode(ctx.version, error, 0, [])
    wanted = list(session.wanted.values()) if session.is_incremental else _wanted_by(req)
    read_committed = req.isolation_level == READ_COMMITTED
    max_bytes = min(req.max_bytes, ctx.cluster.config["fetch.max.bytes"])
    min_bytes = min(req.min_bytes, max_bytes)
    cluster = ctx.cluster
    in_place = ctx.connection.sends_in_place
    refused: list[Result] = []
    if cluster.authorizer is not None:
        wanted, refused = _split_by_permission(ctx, req, wanted)
    results = _read(cluster, wanted, max_bytes, read_committed, in_place)
    if req.max_wait_ms <= 0 or not wanted or _is_enough(results, min_bytes):
        return _answer(ctx, session, results + refused)

    def run(force: bool) -> bool:
        if min_bytes > 1 and not force and _available(cluster, wanted, read_committed) < min_bytes:
            return False  # Too little data: do not read it now, only to read it again later.
        results = _read(cluster, wanted, max_bytes, read_committed, in_place)
        if force or _is_enough(results, min_bytes):
            ctx.reply(_answer(ctx, session, results + refused))
            return True
        return False

    def give_up(error: Exception) -> None:
        ctx.close_connection(f"the request could not be served: {type(error).__name__}: {error}")

    partitions = [p for w in wanted if (p := _partition_of(cluster, w)) is not None]
    fetch = cluster.fetches.wait(partitions, read_committed, ctx.now_ms + req.max_wait_ms, run, give_up)
    ctx.connection.on_close(lambda: cluster.fetches.cancel(fetch))
    return None


# --- which partitions -------------------------------------------------------------------------------------


def _wanted_by(req: FetchRequest) -> list[Wanted]:
    wanted = []
    for topic in req.topics:
        for p in topic.partitions:
            wanted.append(
                Wanted(
                    topic.topic,
                    topic.topic_id,
                    p.partition,
                    p.fetch_offset,
                    p.partition_max_bytes,
                    p.current_leader_epoch,
                )
            )
    if len(wanted) > 1:
        # Kafka: if a partition is named more than once, the last entry counts.
        wanted = list({w[:3]: w for w in wanted}.values())
    return wanted


def _partition_of(cluster: Cluster, wanted: Wanted) -> Partition | None:
    """Find a partition by name or by topic id, as the client asked. An id does not find a later topic of that name."""
    topic_id = wanted.topic_id
    topic = cluster.topics.get(wanted.topic) if topic_id == NO_UUID else cluster.topics_by_id.get(topic_id)
    return None if topic is None else topic.partitions.get(wanted.partition)


def _why_not_here(cluster: Cluster, wanted: Wanted) -> int:
    if wanted.topic_id == NO_UUID:
        return cluster.why_not_here(wanted.topic, wanted.partition)
    # Differs: Kafka answers INCONSISTENT_TOPIC_ID if a topic of a fetch session was deleted and created again.
    # Fencepost answers UNKNOWN_TOPIC_ID. Clients handle both alike.
    topic = cluster.topics_by_id.get(wanted.topic_id)
    return errors.UNKNOWN_TOPIC_ID if topic is None else cluster.why_not_here(topic.name, wanted.partition)


def _split_by_permission(ctx: Context, req: FetchRequest, wanted: list[Wanted]) -> tuple[list[Wanted], list[Result]]:
    """The partitions that the client may read, and the refusal of the others. A fetch does not wait for those."""
    # Kafka: what another broker fetches is a matter of the cluster, not of the topic.
    if req.replica_id >= 0 or (req.replica_state is not None and req.replica_state.replica_id >= 0):
        denied = set() if ctx.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER) else {w[:2] for w in wanted}
    else:
        denied = {topic for topic in {w[:2] for w in wanted} if not _may_read(ctx, *topic)}
    refusal = _nothing(errors.TOPIC_AUTHORIZATION_FAILED)._replace(aborted=[])
    return [w for w in wanted if w[:2] not in denied], [Result(w, refusal) for w in wanted if w[:2] in denied]


def _may_read(ctx: Context, name: str, topic_id: bytes) -> bool:
    topic = ctx.cluster.topics_by_id.get(topic_id)
    if topic is None and topic_id != NO_UUID:
        return True  # The answer is that the id is unknown.
    return ctx.may(Operation.READ, ResourceType.TOPIC, topic.name if topic else name)


def _session_of(ctx: Context, req: FetchRequest) -> tuple[FetchSession, int]:
    """The session of this fetch, updated; a temporary one if the client uses none."""
    sessions = ctx.node.fetch_sessions
    if ctx.version < 7 or req.session_epoch == FINAL_EPOCH:
        if req.session_id:
            sessions.remove(req.session_id)
        return FetchSession(0), errors.NONE
    if req.session_epoch == 0:
        if req.session_id:
            sessions.remove(req.session_id)
        session = sessions.create(ctx.cluster.rng, ctx.version >= FIRST_WITH_TOPIC_IDS)
        sessions.update(session, _wanted_by(req), ())
        return session, errors.NONE
    session, error = sessions.resume(req.session_id, req.session_epoch, ctx.version >= FIRST_WITH_TOPIC_IDS)
    if error:
        return session, error
    forgotten = [(topic.topic, topic.topic_id, i) for topic in req.forgotten_topics_data for i in topic.partitions]
    sessions.update(session, _wanted_by(req), forgotten)
    return session, errors.NONE


# --- reading ----------------------------------------------------------------------------------------------


def _read(
    cluster: Cluster, wanted: Iterable[Wanted], max_bytes: int, read_committed: bool, in_place: bool
) -> list[Result]:
    results = []
    is_empty = True
    for w in wanted:
        partition = _partition_of(cluster, w)
        if partition is None:
            # Differs: in Kafka every in-sync replica answers a consumer's Fetch from v11 on (KIP-392), and checks the
            # epoch that the consumer knows. In Fencepost only the leader of a partition has it.
            error = _why_not_here(cluster, w)
            # Kafka: here the list of aborted transactions is empty and not null, whatever the isolation level.
            results.append(Result(w, _nothing(error)._replace(aborted=[])))
            continue
        error = partition.leader_epochs.check(w.leader_epoch)
        if error:
            results.append(Result(w, _nothing(error)))
            continue
        # Kafka: the first batch of a response is sent whole, however large; a later one only if it fits.
        limit = max(min(w.max_bytes, max_bytes), 0)
        if is_empty or limit:
            try:
                fetched = partition.fetch(w.offset, limit, read_committed, in_place)
            except StorageFailed as e:
                fetched = _nothing(cluster.damage_reports.code_of(partition, e))
            if fetched.error:
                fetched = _nothing(fetched.error)
            elif len(fetched.records) > limit and not is_empty:
                fetched = fetched._replace(records=b"", aborted=[] if read_committed else None)
                if limit == max_bytes:
                    max_bytes = 0  # Do not read the later partitions, which would not fit either.
        else:
            fetched = _only_offsets(partition, read_committed)
        if fetched.records:
            is_empty = False
            max_bytes -= len(fetched.records)
        results.append(Result(w, fetched))
    return results


def _available(cluster: Cluster, wanted: Iterable[Wanted], read_committed: bool) -> int:
    """The most bytes that can be read now. A partition with an error counts as enough, so that it is reported."""
    size = 0
    for w in wanted:
        partition = _partition_of(cluster, w)
        if partition is None or partition.leader_epochs.check(w.leader_epoch):
            return MAX_BYTES
        end = partition.stable_address if read_committed else partition.log.end_address
        try:
            size += max(end - partition.log.address_of(w.offset), 0)
        except StorageFailed:
            return MAX_BYTES
    return size


def _nothing(error: int) -> Fetched:
    return Fetched(error, b"", -1, -1, -1, None)


def _only_offsets(partition: Partition, read_committed: bool) -> Fetched:
    return Fetched(
        errors.NONE,
        b"",
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log.start_offset,
        [] if read_committed else None,
    )


def _is_enough(results: list[Result], min_bytes: int) -> bool:
    size = 0
    for _, fetched in results:
        if fetched.error:
            return True
        size += len(fetched.records)
    return size >= min_bytes


# --- answering --------------------------------------------------------------------------------------------


def _answer(ctx: Context, session: FetchSession, results: list[Result]) -> list[Part]:
    if session.is_incremental:
        results = [r for r in results if session.is_news(r.wanted, r.fetched)]
    elif session.session_id:
        for r in results:
            session.is_news(r.wanted, r.fetched)
        session.is_incremental = True
    return _encode(ctx.version, errors.NONE, session.session_id, results, NewLeaders(ctx))


def _encode(
    version: int, error: int, session_id: int, results: list[Result], leaders: NewLeaders | None = None
) -> list[Part]:
    flexible = version >= 12
    parts: list[Part] = []
    out = bytearray(_HEAD_V7.pack(0, error, session_id) if version >= 7 else _HEAD_V4.pack(0))
    topics: dict[tuple[str, bytes], list[Result]] = {}
    for r in results:
        topics.setdefault((r.wanted.topic, r.wanted.topic_id), []).append(r)
    out += write_uvarint(len(topics) + 1) if flexible else _COUNT.pack(len(topics))
    for (name, topic_id), group in topics.items():
        if version >= 13:
            out += topic_id
        else:
            raw = name.encode()
            out += (write_uvarint(len(raw) + 1) if flexible else _SIZE.pack(len(raw))) + raw
        out += write_uvarint(len(group) + 1) if flexible else _COUNT.pack(len(group))
        for wanted, fetched in group:
            _encode_partition(out, version, flexible, wanted.partition, fetched)
            if fetched.records:
                parts += (bytes(out), fetched.records)
                out = bytearray()
            if not flexible:
                continue
            if fetched.error in OF_OLD_LEADER and version >= FIRST_WITH_LEADERS and leaders is not None:
                out += leaders.name(LEADER_TAG, leaders.cluster.topics_by_id.get(topic_id), wanted.partition)
            else:
                out += NO_TAGS
        if flexible:
            out += NO_TAGS
    if flexible:
        out += NO_TAGS if leaders is None else leaders.endpoints()
    parts.append(bytes(out))
    return parts


def _encode_partition(out: bytearray, version: int, flexible: bool, index: int, fetched: Fetched) -> None:
    """Everything of a partition up to the length of its records."""
    if version >= 5:
        out += _PARTITION_V5.pack(
            index, fetched.error, fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset
        )
    else:
        out += _PARTITION_V4.pack(index, fetched.error, fetched.high_watermark, fetched.last_stable_offset)
    aborted = fetched.aborted
    if aborted is None:
        out += b"\0" if flexible else b"\xff\xff\xff\xff"
    else:
        out += write_uvarint(len(aborted) + 1) if flexible else _COUNT.pack(len(aborted))
        for producer_id, first_offset in aborted:
            out += _ABORTED.pack(producer_id, first_offset)
            if flexible:
                out += b"\0"
    if version >= 11:
        out += NO_REPLICA
    size = len(fetched.records)
    out += write_uvarint(size + 1) if flexible else _COUNT.pack(size)
