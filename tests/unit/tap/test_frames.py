"""What the tap reads of a frame before it passes it on."""

from __future__ import annotations

import pytest

from fencepost.protocol.messages import EndTxnRequest, ProduceRequest, SaslHandshakeRequest
from fencepost.tap.frames import BrokenFrame, FrameCutter, is_raw_login, read_head
from tests.wire.raw_client import encode_frame


@pytest.mark.parametrize("version", [3, 8, 9, 13])
@pytest.mark.parametrize("transactional_id", [None, "t", "t" * 300])
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_produce_request_without_acks_gets_no_answer(version: int, transactional_id: str | None, acks: int) -> None:
    head = read_head(memoryview(encode_frame(ProduceRequest(transactional_id, acks, 1000, []), version, 5, "svc")))
    assert head == (0, version, 5, "svc", acks != 0)


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("tags", [b"\1\5\1\0", b"\2\0\0\x85\1\3abc", b"\1\5\x80\2" + bytes(256)])
def test_the_acks_of_a_produce_request_are_found_behind_the_tags_of_its_header(tags: bytes, acks: int) -> None:
    frame = encode_frame(ProduceRequest("t", acks, 1000, []), 9, 5, "svc")
    header = len(b"\0\0\0\x09\0\0\0\5\0\3svc")
    assert frame[header] == 0  # No tags.
    head = read_head(memoryview(frame[:header] + tags + frame[header + 1 :]))
    assert head == (0, 9, 5, "svc", acks != 0)


def test_tags_that_do_not_end_are_no_reason_to_drop_a_request() -> None:
    for tags in (b"\1", b"\xff" * 900, b"\xff\xff\xff\x7f\1\xff\xff\xff\xff\x7f"):
        assert read_head(memoryview(b"\0\0\0\x09\0\0\0\5\0\0" + tags)).is_answered


def test_a_client_without_an_id_has_an_empty_one() -> None:
    head = read_head(memoryview(encode_frame(EndTxnRequest("t", 1, 0, True), 5, 9, None)))
    assert head == (26, 5, 9, "", True)


def test_after_the_old_handshake_come_frames_without_a_header() -> None:
    assert is_raw_login(read_head(memoryview(b"\0\x11\0\0\0\0\0\1\0\0")))
    assert not is_raw_login(read_head(memoryview(encode_frame(SaslHandshakeRequest("PLAIN"), 1))))


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\x16\x03\x01\x02", "the bytes begin a TLS handshake"),
        (b"\x15\x03\x01\x00", "the bytes are an alert of TLS"),
        (b"GET / HTTP/1.1", "the bytes begin with 'GET ', which is HTTP"),
        (b"\xff\xff\xff\xff", "a frame claims -1 bytes, expected 4 to"),
        (b"\x7f\xff\xff\xff", "a frame claims 2147483647 bytes"),
    ],
)
def test_bytes_that_are_no_frame_are_named(sent: bytes, said: str) -> None:
    cutter = FrameCutter(lambda _: False)
    cutter.feed(sent)
    with pytest.raises(BrokenFrame, match=said):
        cutter.next()


@pytest.mark.parametrize("frame", [b"", b"\0\x1a\0\0\0\0\0\1\0", b"\0\x1a\0\0\0\0\0\1\0\5abc"])
def test_a_request_that_ends_within_its_header_is_broken(frame: bytes) -> None:
    with pytest.raises(BrokenFrame):
        read_head(memoryview(frame))
