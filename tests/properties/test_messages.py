"""Every message, in every version: it survives the round trip, another implementation agrees, and lies are found."""

from __future__ import annotations

import io
import tracemalloc
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from fencepost.protocol.schema import Malformed, Message, MessageDef
from tests.wire.message_values import definitions, message_class, random_message

DEFINITIONS = definitions()
each_message = pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda d: d.name)
seeds = st.integers(0, 2**32)
few = settings(max_examples=15, deadline=None)


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


def kio_schema(definition: MessageDef, version: int) -> Any:
    """The same message in the other implementation; None where that has none."""
    load = load_request_schema if definition.name.endswith("Request") else load_response_schema
    try:
        return load(definition.api_key, version)
    except Exception:
        return None


RPCS = [d for d in DEFINITIONS if d.name.endswith(("Request", "Response"))]


@pytest.mark.parametrize("definition", RPCS, ids=lambda d: d.name)
@few
@given(seed=seeds)
def test_another_implementation_reads_and_writes_the_same_bytes(definition: MessageDef, seed: int) -> None:
    for version in definition.versions:
        schema = kio_schema(definition, version)
        if schema is None:
            continue
        raw = random_message(definition, version, Random(seed), tame=True).encode(version)
        entity, end = entity_reader(schema)(raw, 0)
        assert end == len(raw)
        out = io.BytesIO()
        entity_writer(schema)(out, entity)
        assert out.getvalue() == raw, f"v{version}"


def test_nearly_every_message_is_known_to_the_other_implementation() -> None:
    pairs = [(d, version) for d in RPCS for version in d.versions]
    missing = {f"{d.name} v{version}" for d, version in pairs if kio_schema(d, version) is None}
    assert len(missing) < len(pairs) / 10, sorted(missing)


def decode_or_malformed(cls: type[Message], raw: bytes, version: int) -> None:
    """Decode; Malformed is the only way to fail."""
    with suppress(Malformed):
        cls.decode(raw, 0, version)


@each_message
@settings(max_examples=3, deadline=None)
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
    """Lengths of all kinds that claim the most: what is allocated stays in proportion to what was sent."""
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
