"""The promises that must hold after every seed. The checks run when all faults are over; each raises Violation.

What clients saw is a history, which the verifier's checkers judge. Here are the rules that only a simulation can check,
because it looks into the broker and knows when the broker gave out an epoch:

- A fenced epoch writes nothing.
- Every transaction has ended, and the last stable offset of each partition is at its end.
- Every transactional id can be used again.
- Several recoveries of one disk end in the same state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fencepost.broker.cluster import Cluster
from fencepost.machines.txn.states import IDLE
from fencepost.protocol import errors
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.messages import InitProducerIdRequest
from fencepost.protocol.records import iter_batches
from fencepost.protocol.schema import Message
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.verify.checkers import check_history
from fencepost.verify.checkers.arranging import arrange
from fencepost.verify.checkers.kinds import KINDS
from fencepost.verify.history import Header
from tests.pure_broker import PureConnection
from tests.simulation.history import INPUTS, PLACES, TOPICS, Grant, Violation
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


def check_all(world: World) -> None:
    history = world.history
    for cluster in world.broker.nodes.clusters.values():
        check_nothing_is_open(cluster)
    history.rest()
    read_all(world, read_committed=True)
    headers = read_all(world, read_committed=False)
    for where in PLACES:
        check_epochs(where, headers[where], history.grants)
    check_ids_can_go_on(world)
    if history.is_forgetful:
        return
    history.note_offsets(world.group, group_offsets(world))
    for anomaly in check_history(arrange(Header(world.seed, {}, TOPICS, copies={world.group: "out"}), history.events)):
        if not KINDS[anomaly.kind].is_allowed:
            raise Violation(anomaly.kind, anomaly.what)


# --- asking the broker ------------------------------------------------------------------------------------------


def call(world: World, request: Message, version: int) -> Any:
    connection = PureConnection()
    nodes = world.broker.nodes
    nodes.deliver(nodes.target_of(request), request, version, "checker", connection)
    return decode_reply(request, version, connection.frames[0]) if connection.frames else None


def read_all(world: World, read_committed: bool) -> dict[TopicPartition, list[BatchHeader]]:
    """Note everything from the first offset on; return the headers of its batches."""
    reader, history = f"checker of {'' if read_committed else 'un'}committed", world.history
    positions = dict.fromkeys(PLACES, 0)
    headers: dict[TopicPartition, list[BatchHeader]] = {where: [] for where in PLACES}
    for where in PLACES:
        history.assign(reader, read_committed, where, 0)
    while True:
        before = dict(positions)
        response = call(world, fetch_request(positions, read_committed, MAX_BYTES), FETCH_VERSION)
        for where, fetched in partitions_of(response):
            if fetched.error_code:
                raise Violation("fetch", f"{where}: {errors.name_of(fetched.error_code)}")
            reads, positions[where] = read(where, fetched, positions[where], read_committed)
            history.poll(reader, where, reads, positions[where])
            headers[where] += [header for header, _ in iter_batches(fetched.records or b"")]
            end = fetched.high_watermark
            if positions[where] == before[where] != end:
                raise Violation("LSO", f"{where}: a reader stops at {before[where]}, the log ends at {end}")
        if positions == before:
            return headers


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
    headers = list(headers)
    newest: dict[int, int] = {}
    markers = {
        (header.producer_id, header.producer_epoch): header.base_offset for header in headers if header.is_control
    }
    fences = [
        (
            grant.producer_id,
            grant.epoch,
            max(grant.ends[where], markers.get((grant.producer_id, grant.epoch), 0) if grant.is_before_markers else 0),
        )
        for grant in grants
    ]
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
