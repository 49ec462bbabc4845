"""The record batches of the playground, also those that a broker must refuse. Pure."""

from __future__ import annotations

from fencepost.client.transaction import ProducerIdentity
from fencepost.protocol.batch import CRC_AT, TRANSACTIONAL, assemble, encode_batch, encode_marker, encode_record

TOO_LARGE_BYTES = 1_100_000  # More than message.max.bytes, which is 1,048,588.
YEAR_2100_MS = 4_102_444_800_000
UNKNOWN_CODEC = 7


def batch(who: ProducerIdentity, sequence: int, key: str, value: str, now_ms: int, mistake: str = "") -> bytes:
    """One record in a transactional batch; `mistake` is an option of the button `produce`."""
    producer = (who.producer_id, who.producer_epoch)
    record = (key.encode(), value.encode())
    if mistake == "control-batch":
        return encode_marker(*producer, True, 0, now_ms)
    if mistake == "unknown-codec":
        payload = encode_record(*record)
        return assemble(payload, 1, TRANSACTIONAL | UNKNOWN_CODEC, now_ms, now_ms, *producer, sequence)
    if mistake == "too-large":
        record = (record[0], b"x" * TOO_LARGE_BYTES)
    at_ms = YEAR_2100_MS if mistake == "year-2100" else now_ms
    made = encode_batch([record], at_ms, *producer, sequence, transactional=True)
    if mistake == "damaged":
        return made[:CRC_AT] + bytes(byte ^ 0xFF for byte in made[CRC_AT : CRC_AT + 4]) + made[CRC_AT + 4 :]
    return made
