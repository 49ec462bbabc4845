"""Why a partition refuses a record batch that is sound in itself: the topic's settings, or its producer's order."""

from __future__ import annotations

from fencepost.machines.partition.producers import Producer
from fencepost.protocol import errors
from fencepost.protocol.batch import NO_TIMESTAMP, BatchHeader, Buffer, Corrupt
from fencepost.protocol.produced import RefusedBatch, most_unpacked_bytes, refuse_records
from fencepost.protocol.records import find_record_without_key


def refuse_by_settings(
    records: Buffer, header: BatchHeader, partition: str, allowed: tuple[int, int] | None, is_compacted: bool
) -> RefusedBatch | None:
    """Check a batch against the topic's settings: times in the range `allowed`, and keys if it `is_compacted`."""
    # Differs: Kafka checks the timestamp of every record, and corrects the maximum in the header. Fencepost checks the
    # header, and reads records only to name those at fault.
    fault = None
    if allowed is not None:
        early, late = allowed
        for timestamp in (header.base_timestamp, header.max_timestamp):
            if timestamp != NO_TIMESTAMP and not early <= timestamp <= late:
                reason = f"timestamp {timestamp} is not between {early} and {late}"
                fault = RefusedBatch(errors.INVALID_TIMESTAMP, reason)
    try:
        if fault is None and is_compacted:
            place = find_record_without_key(records, most_unpacked_bytes(header.length))
            if place is not None:
                reason = f"record {place} has no key, and the topic of {partition} is compacted"
                fault = RefusedBatch(errors.INVALID_RECORD, reason)
        if fault is None:
            return None
        return refuse_records(records, header, partition, allowed, is_compacted) or fault
    except Corrupt as e:
        return RefusedBatch(errors.INVALID_RECORD, str(e))


def why_refused(error: int, producer: Producer | None, header: BatchHeader, partition: str) -> str:
    """The message for an error of `decide_batch`, with the values of both sides."""
    who = _name_of(header)
    if error == errors.INVALID_PRODUCER_EPOCH and producer is not None:
        return f"{who} is fenced: epoch {producer.epoch} was seen"
    if error == errors.INVALID_TXN_STATE:
        if header.is_transactional:
            return f"{who} has no open transaction on {partition}"
        return f"{who} sent a plain batch inside a transaction"
    last = -1
    if producer is not None and producer.batches and producer.epoch == header.producer_epoch:
        last = producer.batches[-1].last_sequence
    return f"{who} sent sequence {header.base_sequence}, the last one is {last}"


def repeats_earlier_txn(header: BatchHeader) -> str:
    sequences = f"sequences {header.base_sequence} to {header.last_sequence}"
    return f"{_name_of(header)} sent {sequences} in an earlier transaction"


def _name_of(header: BatchHeader) -> str:
    return f"producer {header.producer_id} with epoch {header.producer_epoch}"
