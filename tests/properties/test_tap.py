"""The tap on the bytes that pass: it changes addresses and nothing else, however the bytes are cut into pieces."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.protocol.apis import body_of_reply, has_flexible_reply_header, response_class
from fencepost.protocol.messages import FetchResponse
from fencepost.protocol.schema import Malformed
from fencepost.tap.frames import HELD_BYTES, FrameCutter, Part
from fencepost.tap.rewriting import FETCH, WITH_ADDRESSES, EndpointHider, knows_addresses, rewritten
from tests.wire.message_values import random_message

seeds = st.integers(0, 2**32)
few = settings(max_examples=15)
OURS = sorted(key for key in WITH_ADDRESSES if key < 78)
VERSIONS = [(key, version) for key in OURS for version in response_class(key).definition.versions]


def frame_of(response: Any, api_key: int, version: int, tags: bytes = b"\0") -> bytes:
    header = struct.pack(">i", 7) + (tags if has_flexible_reply_header(api_key, version) else b"")
    body: bytes = header + response.encode(version)
    return struct.pack(">i", len(body)) + body


def decoded(frame: bytes, api_key: int, version: int) -> Any:
    (size,) = struct.unpack_from(">i", frame)
    assert size == len(frame) - 4
    response, end = response_class(api_key).decode(frame[4:], body_of_reply(frame[4:], api_key, version), version)
    assert end == size
    return response


def places_in(response: Any) -> list[Any]:
    """The parts of a response with an address."""
    if isinstance(response, list | tuple):
        return [place for item in response for place in places_in(item)]
    if not hasattr(response, "__slots__") or isinstance(response, str | bytes):
        return []
    own = [response] if "host" in response.__slots__ else []
    return own + [place for name in response.__slots__ for place in places_in(getattr(response, name))]


def moved(node_id: int, host: str, port: int) -> tuple[str, int]:
    return f"tap-{node_id}", port % 60_000 + 1


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
@few
@given(seed=seeds)
def test_rewriting_changes_addresses_and_no_other_byte(api_key: int, version: int, seed: int) -> None:
    response = random_message(response_class(api_key).definition, version, Random(seed), tame=True)
    # A header may have tags that the tap does not know.
    frame = frame_of(response, api_key, version, b"\1\5\2hi")
    before: list[tuple[str, int]] = []

    def remember(node_id: int, host: str, port: int) -> tuple[str, int]:
        before.append((host, port))
        return moved(node_id, host, port)

    changed = bytes(rewritten(frame, api_key, version, remember))
    expected = decoded(frame, api_key, version)
    for place in places_in(expected):
        node_id = place.broker_id if "broker_id" in place.__slots__ else place.node_id
        if place.host and place.port > 0:
            place.host, place.port = moved(node_id, place.host, place.port)
    assert decoded(changed, api_key, version) == expected
    back = iter(before)
    assert bytes(rewritten(changed, api_key, version, lambda *_: next(back))) == frame


@pytest.mark.parametrize("api_key", OURS)
@few
@given(seed=seeds)
def test_a_reply_that_ends_too_early_is_malformed_or_left_alone(api_key: int, seed: int) -> None:
    rng = Random(seed)
    version = response_class(api_key).definition.versions[-1]
    whole = frame_of(random_message(response_class(api_key).definition, version, rng, tame=True), api_key, version)
    cut = whole[: rng.randrange(8, len(whole))]
    try:
        out = rewritten(cut, api_key, version, moved)
    except Malformed:
        return
    assert len(out) >= 8


@few
@given(seed=seeds, version=st.integers(16, 18))
def test_a_large_fetch_reply_in_pieces_hides_its_addresses_and_changes_no_other_byte(seed: int, version: int) -> None:
    rng = Random(seed)
    response: Any = random_message(FetchResponse.definition, version, rng, tame=True)
    frame = frame_of(response, FETCH, version)
    hider, out, pos = EndpointHider(FETCH, version), bytearray(), 0
    while pos < len(frame):
        size = rng.choice((1, 2, 7, 100, 1000))
        out += hider.pass_on(memoryview(frame)[pos : pos + size])
        pos += size
    response.node_endpoints = []
    assert len(out) == len(frame)
    assert sum(a != b for a, b in zip(out, frame, strict=True)) <= 1
    assert decoded(bytes(out), FETCH, version) == response


def test_versions_that_have_no_definition_are_left_alone() -> None:
    assert not knows_addresses(3, 99)
    assert not knows_addresses(26, 0)
    assert knows_addresses(78, 2)


@few
@given(seed=seeds)
def test_frames_come_out_as_they_went_in_however_they_arrive(seed: int) -> None:
    rng = Random(seed)
    sizes = [rng.choice((4, 10, 1000, HELD_BYTES, HELD_BYTES + 1, 3 * HELD_BYTES)) for _ in range(6)]
    frames = [struct.pack(">i", size) + rng.randbytes(size) for size in sizes]
    whole = {bytes(frame[4:8]) for frame in frames if rng.random() < 0.5}
    cutter = FrameCutter(lambda head: bytes(head[:4]) in whole)
    sent, pos, out, in_pieces = b"".join(frames), 0, bytearray(), False
    while pos < len(sent):
        size = rng.choice((1, 3, 100, 5000, 70_000, 300_000))
        cutter.feed(sent[pos : pos + size])
        pos += size
        while (piece := cutter.next()) is not None:
            assert in_pieces == (piece.part in (Part.MORE, Part.END))
            in_pieces = piece.part in (Part.BEGIN, Part.MORE)
            if piece.part is Part.WHOLE:
                assert bytes(piece.data) in frames
            if piece.part is Part.BEGIN:
                assert bytes(piece.data[4:8]) not in whole
            out += piece.data
    assert out == sent
