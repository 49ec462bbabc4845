"""The promises that must hold after every seed. The checks run when all faults are over; each raises Violation.

- A transaction is read whole or not at all; an aborted one is never read.
- No acknowledged record is lost, doubled or out of order.
- A fenced epoch writes nothing.
- The group's offsets match the outputs.
- Every transaction has ended, and the last stable offset of each partition is at its end.
- A reader that followed from the beginning has delivered exactly the records that are in the log now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fencepost.broker.cluster import Cluster
from fencepost.machines.txn.states import IDLE
from fencepost.protocol import errors
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.messages import InitProducerIdRequest
from fencepost.protocol.records import iter_batches
from fencepost.protocol.schema import Message
from fencepost.protocol.topic_partition import TopicPartition
from tests.pure_broker import PureConnection
from tests.simulation.history import INPUTS, PLACES, Attempt, Follower, Grant, History, Read, Violation
from tests.simulation.reading import (
    FETCH_VERSION,
    fetch_request,
    fetched_offsets,
    offset_fetch,
    offset_fetch_error,
    partitions_of,
    read,
)
from tests.wire.raw_client import decode_reply

if TYPE_CHECKING:
    from tests.simulation.world import World

MAX_BYTES = 1 << 24

Reads = dict[TopicPartition, list[Read]]


def check_all(world: World) -> None:
    history = world.history
    for cluster in world.broker.nodes.clusters.values():
        check_nothing_is_open(cluster)
    committed, _ = read_all(world, read_committed=True)
    everything, headers = read_all(world, read_committed=False)
    for where in PLACES:
        check_epochs(where, headers[where], history.grants)
    check_ids_can_go_on(world)
    if history.is_forgetful:
        return
    for follower in history.followers:
        check_follower(follower, committed if follower.read_committed else everything)
    seen: dict[str, list[TopicPartition]] = {}
    for where, reads in committed.items():
        check_order(where, reads)
        for each in reads:
            seen.setdefault(each.value, []).append(where)
    for attempt in history.attempts.values():
        check_attempt(attempt, seen)
    check_plain(history, committed)
    offsets = group_offsets(world)
    for where, offset in offsets.items():
        check_pipeline(where, committed[where], offset, _outputs(committed, where))


# --- asking the broker ------------------------------------------------------------------------------------------


def call(world: World, request: Message, version: int) -> Any:
    connection = PureConnection()
    nodes = world.broker.nodes
    nodes.deliver(nodes.target_of(request), request, version, "checker", connection)
    return decode_reply(request, version, connection.frames[0]) if connection.frames else None


def read_all(world: World, read_committed: bool) -> tuple[Reads, dict[TopicPartition, list[BatchHeader]]]:
    """Everything from the first offset on, and the headers of its batches."""
    positions = dict.fromkeys(PLACES, 0)
    reads: Reads = {where: [] for where in PLACES}
    headers: dict[TopicPartition, list[BatchHeader]] = {where: [] for where in PLACES}
    while True:
        before = dict(positions)
        response = call(world, fetch_request(positions, read_committed, MAX_BYTES), FETCH_VERSION)
        for where, fetched in partitions_of(response):
            if fetched.error_code:
                raise Violation("fetch", f"{where}: {errors.name_of(fetched.error_code)}")
            more, positions[where] = read(where, fetched, positions[where], read_committed)
            reads[where] += more
            headers[where] += [header for header, _ in iter_batches(fetched.records or b"")]
            end = fetched.high_watermark
            if positions[where] == before[where] != end:
                raise Violation("LSO", f"{where}: a reader stops at {before[where]}, the log ends at {end}")
        if positions == before:
            return reads, headers


def group_offsets(world: World) -> dict[TopicPartition, int]:
    world.broker.cluster.groups.partition_of(world.group, world.clock.now_ms)  # The topic exists from here on.
    response = call(world, offset_fetch(world.group, INPUTS, require_stable=True), 8)
    if offset_fetch_error(response):
        raise Violation("offsets", f"still {errors.name_of(offset_fetch_error(response))} with no transaction open")
    return {where: max(offset, 0) for where, offset in fetched_offsets(response).items()}


# --- the checks -------------------------------------------------------------------------------------------------


def check_nothing_is_open(cluster: Cluster) -> None:
    for txn in cluster.txns.all_txns():
        if txn.state not in IDLE:
            raise Violation("no end", f"{txn.transactional_id} is {txn.state.kafka_name} after its timeout")
    for topic in cluster.topics.values():
        for partition in topic.partitions.values():
            if partition.last_stable_offset != partition.high_watermark:
                raise Violation(
                    "LSO pinned",
                    f"{topic.name}-{partition.index}: the last stable offset is {partition.last_stable_offset}, "
                    f"the high watermark {partition.high_watermark}, and no transaction is open",
                )


def check_epochs(where: TopicPartition, headers: Iterable[BatchHeader], grants: Iterable[Grant]) -> None:
    fences = [(grant.producer_id, grant.epoch, grant.ends[where]) for grant in grants]
    newest: dict[int, int] = {}
    for header in headers:
        if header.producer_id < 0:
            continue
        epoch = newest.get(header.producer_id, -1)
        if header.producer_epoch < epoch:
            raise Violation("fenced write", f"{where}: {_who(header)} wrote after epoch {epoch}")
        newest[header.producer_id] = header.producer_epoch
        if header.is_control:
            continue
        for producer_id, granted, end in fences:
            if producer_id == header.producer_id and header.producer_epoch < granted and header.base_offset >= end:
                raise Violation(
                    "fenced write", f"{where}: {_who(header)} wrote after epoch {granted} was given at offset {end}"
                )


def _who(header: BatchHeader) -> str:
    return f"offset {header.base_offset}, producer {header.producer_id} epoch {header.producer_epoch}"


def check_follower(follower: Follower, there: Mapping[TopicPartition, list[Read]]) -> None:
    for where, position in follower.positions.items():
        expected = [each for each in there[where] if each.offset < position]
        delivered = follower.delivered.get(where, [])
        if delivered != expected:
            same = (i for i, (a, b) in enumerate(zip(delivered, expected)) if a != b)
            at = next(same, min(len(delivered), len(expected)))
            raise Violation(
                "reader",
                f"{follower.name} (read_{'' if follower.read_committed else 'un'}committed) of {where}: "
                f"delivered {delivered[at : at + 2]}, the log has {expected[at : at + 2]}",
            )


def check_order(where: TopicPartition, reads: list[Read]) -> None:
    """The transactions of a client instance, and the records in them, are in the order in which it sent them."""
    last: dict[str, tuple[int, int]] = {}
    for each in reads:
        key, number, *_ = each.value.split(":")
        instance, _, txn = key.rpartition("-")
        place = (int(txn) if instance else 0, int(number))
        if place <= last.get(instance or key, (-1, -1)):
            raise Violation("doubled or out of order", f"{where}: {each} comes after {last[instance or key]}")
        last[instance or key] = place


def check_attempt(attempt: Attempt, seen: Mapping[str, list[TopicPartition]]) -> None:
    there = [value for value in attempt.sent if value in seen]
    for value in there:
        if seen[value] != [attempt.sent[value]]:
            raise Violation("doubled", f"{value} was sent to {attempt.sent[value]}, and is in {seen[value]}")
    if there and not attempt.may_be_there:
        raise Violation("aborted read", f"{attempt.key} ({attempt.outcome or 'never ended'}) was read: {there}")
    if there and len(there) != len(attempt.sent):
        raise Violation("torn", f"{attempt.key}: {len(there)} of {len(attempt.sent)} records were read: {there}")
    if not there and attempt.sent and attempt.must_be_there:
        raise Violation("commit lost", f"{attempt.key} was committed, but was not read")


def check_plain(history: History, there: Mapping[TopicPartition, list[Read]]) -> None:
    for where, acknowledged in history.plain.items():
        values = {each.value for each in there[where]}
        for value in acknowledged:
            if value not in values:
                raise Violation("lost", f"{where}: {value} was acknowledged, but was not read")


def _outputs(committed: Mapping[TopicPartition, list[Read]], where: TopicPartition) -> list[int]:
    """The offsets of the input partition `where` that have an output, in order."""
    return sorted(
        int(words[3])
        for place, reads in committed.items()
        if place[0] == "out"
        for each in reads
        if len(words := each.value.split(":")) == 4 and int(words[2]) == where[1]
    )


def check_pipeline(where: TopicPartition, inputs: list[Read], offset: int, outputs: list[int]) -> None:
    expected = [each.offset for each in inputs if each.offset < offset]
    if outputs != expected:
        raise Violation(
            "exactly once", f"{where}: the group is at {offset}; inputs before it: {expected}; outputs for: {outputs}"
        )


def check_ids_can_go_on(world: World) -> None:
    for txn in [txn for cluster in world.broker.nodes.clusters.values() for txn in cluster.txns.all_txns()]:
        request = InitProducerIdRequest(txn.transactional_id, 1000)
        response = call(world, request, 5)
        # No response yet: the answer waits for a sync to disk.
        if response is not None and response.error_code:
            raise Violation("stuck", f"{txn.transactional_id}: InitProducerId {errors.name_of(response.error_code)}")


# --- recovery ---------------------------------------------------------------------------------------------------


def describe_state(cluster: Cluster) -> dict[str, Any]:
    """The state that a recovery restores, without what only the running process knows."""
    state: dict[str, Any] = {}
    for topic in cluster.topics.values():
        for partition in topic.partitions.values():
            producers = {
                pid: (p.epoch, [b[:3] for b in p.batches[-1:]], p.coordinator_epoch, p.txn_first_offset)
                for pid, p in partition.producers.by_id.items()
            }
            log = partition.log
            aborted = log.aborted(log.start_offset, log.end_offset)
            state[f"{topic.name}-{partition.index}"] = (producers, aborted)
            if not topic.is_internal:  # A coordinator's log grows when it finishes the transactions that it finds.
                state[f"{topic.name}-{partition.index} ends"] = (partition.last_stable_offset, log.end_offset)
    for txn in cluster.txns.all_txns():
        state[txn.transactional_id] = (txn.producer_id, txn.producer_epoch, txn.state, txn.partitions)
    for number, home in cluster.groups._homes.items():
        state[f"offsets {number}"] = (home.shard.offsets._committed, home.shard.offsets._pending)
    return state


def check_same(states: list[dict[str, Any]]) -> None:
    for other in states[1:]:
        if other != states[0]:
            differing = [key for key in states[0].keys() | other.keys() if states[0].get(key) != other.get(key)]
            key = min(differing)
            raise Violation(
                "recovery", f"{key} is {states[0].get(key)} after one recovery, {other.get(key)} after another"
            )
