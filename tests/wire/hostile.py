"""Requests from clients that are wrong, confused or hostile, for every API and version.

    frames = HostileFrames(seed=7)
    frame = frames.next()                       # Without the length before it.
    frames.learn(response, frames.identity)     # Later requests use the ids in a reply, so that some are valid.

A third of the frames are well formed, with meaningful values and values at the limits. The others have bytes flipped,
inserted, removed or copied from another frame.

Many frames are valid: they write, delete topics, end transactions. So that other clients can use the same broker, the
frames harm only what they can name. They know the topics, groups and transactional ids below, the ids of those topics,
and the producer ids that they were given, and learn no others from replies. They name the internal topics too, where
others have records: a broker lets clients change those only with WriteTxnMarkers, which needs a producer id. A border
of ACLs would keep them from requests about the whole cluster.
"""

from __future__ import annotations

import random
import struct
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import cramjam

from fencepost.broker.api import APIS
from fencepost.protocol import errors, messages
from fencepost.protocol.batch import assemble, encode_batch, encode_record
from fencepost.protocol.schema import Field, Message
from tests.wire.raw_client import encode_frame

# Other clients of the same broker must not use these names, nor parts of them.
TOPICS = ("tea", "coffee", "milk", "__transaction_state", "__consumer_offsets")
TOPIC_WEIGHTS = (10, 10, 3, 1, 1)
GROUPS = ("group-a", "group-b", "")
TXN_IDS = ("txn-a", "txn-b", "txn-c", "")
WORDS = (
    "",
    "x",
    "consumer",
    "range",
    "roundrobin",
    "Ongoing",
    "Empty",
    "1",
    ".*",
    "(",
    "é",
    "a" * 300,
    "\0",
    "a b",
    ".",
    "..",
)
EDGES = (0, 1, -1, 2, -2, 3, 5, 7, 100, 1000, 30_000)
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 17, "uint32": 33}
BUSY = (0, 1, 11, 14, 22, 24, 26, 28)  # The API keys that clients send most.
NOBODYS_PRODUCER_ID = 1 << 40
SESSION_MS = (6_000, 10_000, 30_000)
CODECS = (lambda b: b, cramjam.gzip.compress, cramjam.snappy.compress_raw, cramjam.lz4.compress, cramjam.zstd.compress)


@dataclass
class Identity:
    """The ids that a request claims."""

    transactional_id: str = ""
    producer_id: int = -1
    producer_epoch: int = -1
    group_id: str = ""
    member_id: str = ""
    generation_id: int = -1


class HostileFrames:
    def __init__(self, seed: int, now_ms: int = 1_700_000_000_000) -> None:
        self.rng = random.Random(seed)
        self.now_ms = now_ms
        self._known: dict[str, deque[Any]] = {}
        self._producers = [Identity(transactional_id=id_) for id_ in TXN_IDS]
        self._members = [Identity(group_id=id_) for id_ in GROUPS for _ in range(2)]
        self.identity = Identity()
        self._last = deque([b"\0" * 20], maxlen=50)
        self._sequences: dict[tuple[int, int], int] = {}

    # --- frames -------------------------------------------------------------------------------------------

    def next(self) -> bytes:
        rng = self.rng
        frame = self.well_formed()
        self._last.append(frame)
        if rng.random() < 0.34:
            return frame
        data = bytearray(frame)
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            self._mutate(data)
        return bytes(data)

    def well_formed(self) -> bytes:
        rng = self.rng
        api = rng.choice(list(APIS.values()))
        if api.name == "DeleteTopics" and rng.random() < 0.9:
            api = APIS[3]
        if rng.random() < 0.3:
            api = APIS[rng.choice(BUSY)]
        version = rng.randint(api.first, api.last)
        self.identity = self._new_identity()
        if rng.random() < 0.01:
            version = rng.choice((-1, api.last + 1, 32767, api.first - 1))
        request = self._message(getattr(messages, f"{api.name}Request"), min(max(version, api.first), api.last))
        client_id = rng.choice(("client", None, "", "ü" * 10))
        frame = encode_frame(request, min(max(version, api.first), api.last), rng.randint(0, 2**31 - 1), client_id)
        if not api.first <= version <= api.last:
            frame = frame[:2] + struct.pack(">h", version) + frame[4:]
        return frame

    def _new_identity(self) -> Identity:
        """Mostly ids that the broker gave out, sometimes with a wrong epoch, generation or transactional id."""
        rng = self.rng
        producer, member = rng.choice(self._producers), rng.choice(self._members)
        identity = replace(
            producer, group_id=member.group_id, member_id=member.member_id, generation_id=member.generation_id
        )
        if rng.random() < 0.1:
            identity.producer_epoch += rng.choice((-1, 1))
        if rng.random() < 0.1:
            identity.transactional_id = rng.choice(TXN_IDS)
        if rng.random() < 0.1:
            identity.generation_id += rng.choice((-1, 1))
        return identity

    def _mutate(self, data: bytearray) -> None:
        rng = self.rng
        if not data:
            return
        at = rng.randrange(len(data))
        # Most mutations spare the header, so that the broker reads what follows it.
        if at < 8 and rng.random() < 0.8:
            at = rng.randrange(min(8, len(data) - 1), len(data))
        kind = rng.randrange(7)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.choice((0, 1, 2, 127, 128, 255, rng.randrange(256)))
        elif kind == 2:
            data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 50)))
        elif kind == 3:
            del data[at : at + rng.choice((1, 2, 4, 8, 100))]
        elif kind == 4:
            del data[at:]
        elif kind == 5:
            other = rng.choice(self._last)
            cut = rng.randrange(len(other))
            data[at:] = other[cut:]
        else:
            size = rng.choice((2, 4, 8))
            value = rng.choice((0, 1, -1, 2 ** (8 * size - 1) - 1, -(2 ** (8 * size - 1)), 2 ** (8 * size - 2)))
            data[at : at + size] = value.to_bytes(size, "big", signed=True)

    # --- learning from replies -----------------------------------------------------------------------------

    def learn(self, response: Any, asked_by: Identity) -> None:
        """Remember the ids in a reply, but for those of others."""
        for at, known in enumerate(self._producers):
            if known.transactional_id == asked_by.transactional_id and getattr(response, "producer_id", -1) >= 0:
                self._producers[at] = replace(
                    known, producer_id=response.producer_id, producer_epoch=response.producer_epoch
                )
        error = getattr(response, "error_code", errors.NONE)
        if error == errors.UNKNOWN_MEMBER_ID:
            self._members = [
                replace(m, member_id="") if m.member_id == asked_by.member_id else m for m in self._members
            ]
        if getattr(response, "member_id", "") and error in (errors.NONE, errors.MEMBER_ID_REQUIRED):
            at = self.rng.choice([i for i, m in enumerate(self._members) if m.group_id == asked_by.group_id])
            self._members[at] = Identity(
                group_id=asked_by.group_id,
                member_id=response.member_id,
                generation_id=getattr(response, "generation_id", asked_by.generation_id),
            )
        self._learn_struct(response, response.definition.fields)

    def _learn_struct(self, value: Any, fields: list[Field]) -> None:
        for f in fields:
            got = getattr(value, f.name)
            if f.struct:
                for item in (got or ()) if f.is_array else ([got] if got is not None else []):
                    self._learn_struct(item, f.struct.fields)
            elif got not in (bytes(16), 0) and (
                f.name == "session_id" or (f.name == "topic_id" and getattr(value, "name", None) in TOPICS)
            ):
                self._known.setdefault(f.name, deque(maxlen=6)).append(got)

    # --- values -------------------------------------------------------------------------------------------

    def _message(self, cls: type[Message], version: int) -> Message:
        message = cls()
        self._fill(message, cls, cls.definition.fields, version)
        return message

    def _fill(self, target: Any, cls: type[Message], fields: list[Field], version: int) -> None:
        rng = self.rng
        for f in fields:
            if version not in f.versions:
                continue
            if version in f.null_versions and rng.random() < 0.15:
                setattr(target, f.name, None)
            elif f.is_array:
                count = rng.choice((0, 1, 1, 1, 2, 3))
                setattr(target, f.name, [self._one(f, cls, version) for _ in range(count)])
            else:
                setattr(target, f.name, self._one(f, cls, version))

    def _one(self, f: Field, cls: type[Message], version: int) -> Any:
        if f.struct:
            made = getattr(cls, f.struct.name)()
            self._fill(made, cls, f.struct.fields, version)
            if f.name == "protocols" and self.rng.random() < 0.9:
                made.name = "range"
            return made
        return self._value(f)

    def _value(self, f: Field) -> Any:
        rng, name = self.rng, f.name
        claimed = name.removeprefix("v3_and_below_")
        claimed = "generation_id" if claimed == "generation_id_or_member_epoch" else claimed
        if hasattr(self.identity, claimed) and rng.random() < 0.9:
            return getattr(self.identity, claimed)
        known = self._known.get(name)
        if known and rng.random() < 0.7:
            return rng.choice(known)
        if f.type == "string":
            return self._string(name)
        if f.type == "bool":
            return rng.random() < 0.5
        if f.type == "float64":
            return rng.random()
        if f.type == "uuid":
            return rng.choice((bytes(16), rng.randbytes(16)))
        if f.type == "records":
            return self._records()
        if f.type == "bytes":
            return rng.randbytes(rng.choice((0, 1, 20)))
        return self._int(f)

    def _string(self, name: str) -> str:
        rng = self.rng
        if rng.random() < 0.08:
            return rng.choice(WORDS)
        if "transactional_id" in name:
            return rng.choice(TXN_IDS)
        if "group" in name and "instance" not in name:
            return rng.choice(GROUPS)
        if name in ("name", "topic", "topics", "topic_names", "resource_name"):
            return rng.choices(TOPICS, TOPIC_WEIGHTS)[0]
        if name in ("protocol_name", "protocols"):
            return "range"
        if name == "protocol_type":
            return "consumer"
        return rng.choice(WORDS)

    def _int(self, f: Field) -> int:
        rng, name = self.rng, f.name
        if name.endswith("producer_id"):
            return rng.choice([*(known.producer_id for known in self._producers), -1, NOBODYS_PRODUCER_ID])
        if rng.random() < 0.06:
            bits = BITS[f.type]
            value = rng.choice(
                (-(1 << bits - 1), (1 << bits - 1) - 1, rng.getrandbits(bits - 1), -rng.getrandbits(bits - 1))
            )
            return value if f.type[0] == "i" else max(value, 0)
        if name in (
            "producer_epoch",
            "generation_id",
            "partition",
            "partitions",
            "partition_index",
            "index",
            "partition_indexes",
        ):
            return rng.choice((0, 0, 0, 1, 2, -1))
        if name.endswith("timeout_ms") and f.type == "int32":
            return rng.choice(SESSION_MS)
        if name == "num_partitions":
            return rng.choice((-1, 1, 3, 0, 20_000))
        if name == "count":
            return rng.choice((2, 4, 8, -1, 20_000))
        if name == "max_wait_ms":
            return rng.choice((0, 0, 100, 1000))
        if name == "timestamp":
            return rng.choice((-1, -2, -3, -4, -5, 0, self.now_ms))
        if name == "key_type":
            return rng.choice((0, 1, 2))
        if f.type in ("int8", "int16"):
            return rng.choice((0, 1, -1, 2, 3))
        value = rng.choice(EDGES)
        return value if f.type[0] == "i" else max(value, 0)

    def _records(self) -> bytes:
        rng = self.rng
        producer_id, epoch = self.identity.producer_id, self.identity.producer_epoch
        if rng.random() < 0.2:
            producer_id = epoch = -1
        count = rng.choice((1, 1, 2, 5))
        sequence = -1
        if producer_id >= 0:
            sequence = self._sequences.get((producer_id, epoch), 0)
            if rng.random() < 0.3:
                sequence = rng.choice((0, 1, 2**31 - 1))
            self._sequences[producer_id, epoch] = (sequence + count) & (2**31 - 1)
        pairs = [(rng.choice((None, b"k")), rng.choice((None, b"", b"value"))) for _ in range(count)]
        is_transactional = producer_id >= 0 and rng.random() < 0.8
        batch = encode_batch(pairs, self.now_ms, producer_id, epoch, sequence, is_transactional)
        roll = rng.random()
        if roll < 0.6:
            return batch
        if roll < 0.8:
            return self._odd_batch(pairs, producer_id, epoch, sequence, is_transactional)
        if roll < 0.85:
            return batch + batch
        if roll < 0.9:
            return batch[: rng.randrange(len(batch))]
        data = bytearray(batch)
        self._mutate(data)
        return bytes(data)

    def _odd_batch(
        self, pairs: list[tuple[bytes | None, bytes | None]], producer_id: int, epoch: int, sequence: int, txn: bool
    ) -> bytes:
        """A batch with a correct checksum and a header that may be wrong."""
        rng = self.rng
        payload = b"".join(encode_record(key, value, i) for i, (key, value) in enumerate(pairs))
        codec = rng.choice((0, 1, 2, 3, 4, 5, 7))
        if codec < len(CODECS) and rng.random() < 0.8:
            payload = bytes(CODECS[codec](payload))
        attributes = codec | (0x10 if txn else 0) | rng.choice((0, 0, 0, 0x08, 0x20, 0x40, 0x7F80))
        count = rng.choice((len(pairs), len(pairs), 0, -1, 1000, 2**31 - 1))
        timestamps = (self.now_ms, 0, -1, 2**63 - 1, -(2**63))
        try:
            return assemble(
                payload, count, attributes, rng.choice(timestamps), rng.choice(timestamps), producer_id, epoch, sequence
            )
        except struct.error:
            return payload
