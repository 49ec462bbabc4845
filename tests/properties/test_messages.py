"""Every message in every version: it survives the round trip, another implementation agrees, bad bytes are refused."""

from __future__ import annotations

import dataclasses
import io
import re
import tracemalloc
from contextlib import suppress
from random import Random
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import KioIndexError, load_entity_schema, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from fencepost.protocol.schema import Field, Malformed, Message, MessageDef
from tests.wire.message_values import definitions, fields_of, message_class, random_message

DEFINITIONS = definitions()
each_message = pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda d: d.name)
seeds = st.integers(0, 2**32)
few = settings(max_examples=5)


@each_message
@few
@given(seed=seeds)
def test_a_message_survives_the_round_trip(definition: MessageDef, seed: int) -> None:
    for version in definition.versions:
        sent = random_message(definition, version, Random(seed))
        raw = sent.encode(version)
        received, end = message_class(definition).decode(b"??" + raw + b"!!", 2, version)
        assert end == len(raw) + 2
        assert received == sent
        assert received.encode(version) == raw


# What kio does not know, or knows differently. `test_nothing_else_is_tolerated` fails if an entry is missing or stale.
OUR_OWN = {"DescribeRpcsRequest", "DescribeRpcsResponse", "OrderNodesRequest", "OrderNodesResponse"}
STORED = {
    f"{name}{half}"
    for half in ("Key", "Value")
    for name in (
        "ConsumerGroupCurrentMemberAssignment", "ConsumerGroupMemberMetadata", "ConsumerGroupMetadata",
        "ConsumerGroupRegularExpression", "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupTargetAssignmentMetadata", "GroupMetadata", "OffsetCommit", "TransactionLog",
    )
}  # fmt: skip
KIO_LACKS = OUR_OWN | STORED
# kio turns these into `timedelta` or `datetime`, and leaves `_ms` out of their names.
KIO_TIMES = {
    "heartbeat_interval_ms", "log_append_time_ms", "max_wait_ms", "push_interval_ms", "rebalance_timeout_ms",
    "retention_time_ms", "session_lifetime_ms", "session_timeout_ms", "throttle_time_ms", "timeout_ms",
    "transaction_start_time_ms", "transaction_timeout_ms",
}  # fmt: skip
IN_KIO = [d for d in DEFINITIONS if d.name not in KIO_LACKS]
each_in_kio = pytest.mark.parametrize("definition", IN_KIO, ids=lambda d: d.name)


def kio_schema(definition: MessageDef, version: int) -> Any:
    """The same message in the other implementation. Raises `KioIndexError` if there is none."""
    if definition.name.endswith("Request"):
        return load_request_schema(definition.api_key, version)
    if definition.name.endswith("Response"):
        return load_response_schema(definition.api_key, version)
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", definition.name).lower()
    return load_entity_schema(name, version, EntityType.data)


@each_in_kio
@few
@given(seed=seeds)
def test_another_implementation_reads_and_writes_the_same_bytes(definition: MessageDef, seed: int) -> None:
    for version in definition.versions:
        schema = kio_schema(definition, version)
        # Tame, because kio refuses unknown error codes and times outside of Python's calendar.
        raw = random_message(definition, version, Random(seed), tame=True).encode(version)
        entity, end = entity_reader(schema)(raw, 0)
        assert end == len(raw)
        out = io.BytesIO()
        entity_writer(schema)(out, entity)
        assert out.getvalue() == raw, f"v{version}"


def field_names(definition: MessageDef, fields: list[Field], version: int) -> list[Any]:
    """The fields that a version has, in their order: names, and for a struct a pair of its name and its fields."""
    return [
        (f.name, field_names(definition, fields_of(definition, f), version)) if f.struct else f.name
        for f in fields
        if version in f.versions
    ]


def kio_field_names(schema: Any, times: dict[str, str]) -> list[Any]:
    types = get_type_hints(schema)
    found: list[Any] = []
    for f in dataclasses.fields(schema):
        name = times.get(f.name, f.name)
        struct = struct_in(types[f.name])
        found.append((name, kio_field_names(struct, times)) if struct else name)
    return found


def struct_in(kind: Any) -> Any:
    """The struct in a type such as `tuple[Topic, ...] | None`; None if there is none."""
    if dataclasses.is_dataclass(kind):
        return kind
    return next(filter(None, map(struct_in, get_args(kind))), None)


@each_in_kio
def test_another_implementation_has_the_same_fields_in_the_same_order(definition: MessageDef) -> None:
    times = {name.removesuffix("_ms"): name for name in KIO_TIMES}
    for version in definition.versions:
        theirs = kio_field_names(kio_schema(definition, version), times)
        assert field_names(definition, definition.fields, version) == theirs, f"v{version}"


def is_in_kio(definition: MessageDef, version: int) -> bool:
    try:
        kio_schema(definition, version)
    except KioIndexError:
        return False
    return True


def test_nothing_else_is_tolerated() -> None:
    lacking = {d.name for d in DEFINITIONS for version in d.versions if not is_in_kio(d, version)}
    assert lacking == KIO_LACKS
    assert all(not is_in_kio(d, version) for d in DEFINITIONS if d.name in KIO_LACKS for version in d.versions)
    renamed = {name for d in IN_KIO for name in names_ending_in_ms(d.fields)}
    assert renamed == KIO_TIMES


def names_ending_in_ms(fields: list[Field]) -> set[str]:
    found = {f.name for f in fields if f.name.endswith("_ms")}
    return found.union(*(names_ending_in_ms(f.struct.fields) for f in fields if f.struct))


def decode_or_malformed(cls: type[Message], raw: bytes, version: int) -> None:
    """Decode; Malformed is the only way to fail."""
    with suppress(Malformed):
        cls.decode(raw, 0, version)


@each_message
@settings(max_examples=3)
@given(seed=seeds)
def test_a_message_that_is_cut_off_anywhere_is_malformed(definition: MessageDef, seed: int) -> None:
    cls = message_class(definition)
    for version in definition.versions:
        raw = random_message(definition, version, Random(seed)).encode(version)
        for end in range(0, len(raw), max(1, len(raw) // 200)):
            with pytest.raises(Malformed):
                cls.decode(raw[:end], 0, version)


@each_message
@few
@given(seed=seeds)
def test_a_damaged_message_is_decoded_or_malformed(definition: MessageDef, seed: int) -> None:
    rng = Random(seed)
    cls = message_class(definition)
    for version in definition.versions:
        raw = bytearray(random_message(definition, version, rng).encode(version))
        for _ in range(rng.choice((1, 2, 8))):
            if raw:
                raw[rng.randrange(len(raw))] = rng.choice((0, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        decode_or_malformed(cls, bytes(raw), version)


@each_message
@few
@given(raw=st.binary(max_size=200))
def test_random_bytes_are_decoded_or_malformed(definition: MessageDef, raw: bytes) -> None:
    for version in definition.versions:
        decode_or_malformed(message_class(definition), raw, version)


@each_message
def test_a_small_message_never_takes_much_memory(definition: MessageDef) -> None:
    """With the largest lengths of all kinds, memory stays in proportion to the size of the message."""
    cls = message_class(definition)
    for version in (definition.versions[0], definition.versions[-1]):
        for filler in (b"\xff\xff\xff\xff\x07", b"\x7f", b"\xff", b"\x00\x00\x40\x00", b"\0"):
            for size in (8, 64, 512):
                raw = (filler * size)[:size]
                decode_or_malformed(cls, raw, version)  # Compiles the decoder, which is not to be counted.
                tracemalloc.start()
                decode_or_malformed(cls, raw, version)
                _, peak = tracemalloc.get_traced_memory()
                tracemalloc.stop()
                assert peak < 64 * 1024 + 400 * size, f"v{version} with {filler!r}: {peak} bytes for {size}"
