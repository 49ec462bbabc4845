"""Makes a partition from its log: the newest snapshot of its producers, and the batches that came after it.

Replay and live appends use the same functions: `Partition.apply_data`, which calls `Producers.apply_batch`, for a data
batch, and `Partition.apply_marker` for a marker.
"""

from __future__ import annotations

from fencepost.machines.log.interface import Log
from fencepost.machines.partition.leader_epochs import LeaderEpochs
from fencepost.machines.partition.partition import DEFAULT_PRODUCER_ID_EXPIRATION_MS, Partition
from fencepost.machines.partition.producers import OpenTxn, decode_snapshot, open_txns_of
from fencepost.protocol.batch import (
    CONTROL,
    LEADER_EPOCH,
    NO_PRODUCER_ID,
    PRODUCER_ID,
    Corrupt,
    decode_header,
    decode_marker,
)


def recover(
    log: Log,
    topic: str,
    index: int,
    leader_epoch: int = 0,
    *,
    now_ms: int | None = None,
    producer_id_expiration_ms: int = DEFAULT_PRODUCER_ID_EXPIRATION_MS,
) -> Partition:
    """The partition as it was when its log was last written; with `now_ms`, without producers that have expired."""
    partition = Partition(log, topic, index, leader_epoch)
    replay(partition, _load_snapshot(partition))
    partition.aborted_bytes = 0  # It counts from the start of the process.
    if partition.producers.open_txns:
        partition.move_open_txns(log.address_of(log.start_offset))
    if now_ms is not None:
        partition.expire_producers(now_ms, producer_id_expiration_ms)
    oldest = partition.producers.oldest_txn()
    if oldest is not None:
        partition.last_stable_offset, partition.stable_address = oldest
    # The index may hold more than was replayed.
    partition.last_aborted_offset = log.end_offset - 1
    if log.wants_snapshot():
        partition.save_snapshot()
    return partition


def _load_snapshot(partition: Partition) -> int:
    """Take the log's snapshot into the state; return the offset to replay from."""
    log = partition.log
    found = log.load_snapshot()
    if found is None:
        return 0  # Everything in the log, including batches before its start.
    from_offset, snapshot = found
    try:
        producers = decode_snapshot(snapshot)
    except Corrupt:
        return 0
    partition.producers.by_id = producers
    for first_offset, producer_id in open_txns_of(producers.items()):
        partition.producers.open_txns[producer_id] = OpenTxn(first_offset, log.address_of(first_offset))
    return from_offset


def replay(partition: Partition, from_offset: int) -> None:
    """Apply the batches of the log from `from_offset` on."""
    log = partition.log
    epochs = LeaderEpochs(log.leader_epochs())
    indexed = log.aborted(from_offset, log.end_offset)
    last_indexed = indexed[-1].last_offset if indexed else -1
    known_epoch = b""
    for address, _, head in log.scan(from_offset):
        if head[PRODUCER_ID] == NO_PRODUCER_ID and head[LEADER_EPOCH] == known_epoch:
            continue  # It changes nothing.
        known_epoch = head[LEADER_EPOCH]
        header = decode_header(head)
        if header.base_offset < from_offset:
            continue  # The snapshot was taken after this batch.
        epochs.begin(header.leader_epoch, header.base_offset)
        if header.producer_id < 0:
            continue
        if not header.attributes & CONTROL:
            partition.apply_data(header, address)
            continue
        marker = decode_marker(head)
        if marker is not None:
            partition.apply_marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.commit,
                marker.coordinator_epoch,
                marker.timestamp,
                marker.offset,
                last_indexed,
            )
    epochs.begin(partition.leader_epochs.current, log.end_offset)
    partition.leader_epochs = epochs
