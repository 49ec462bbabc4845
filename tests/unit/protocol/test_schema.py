"""The codec: its layouts byte by byte, and its answer to wrong bytes."""

from __future__ import annotations

import traceback
from importlib import resources

import pytest

from fencepost.protocol import messages, stubs
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    ApiVersionsResponse,
    DescribeConfigsRequest,
    EndTxnRequest,
    EndTxnResponse,
    FetchRequest,
    InitProducerIdRequest,
    OffsetFetchRequest,
    TransactionLogValue,
    TxnOffsetCommitRequest,
)
from fencepost.protocol.schema import MAX_REQUEST_ELEMENTS, MAX_STRING_BYTES, Malformed, write_uvarint

END_TXN_V0 = b"\0\x02t1" + (7).to_bytes(8, "big") + b"\0\3" + b"\1"


def test_a_field_that_a_version_lacks_takes_its_default() -> None:
    raw = EndTxnResponse(0, 47, producer_id=9, producer_epoch=2).encode(4)
    assert EndTxnResponse.decode(raw, 0, 4)[0] == EndTxnResponse(0, 47, producer_id=-1, producer_epoch=-1)


def test_a_tagged_field_is_sent_only_when_it_is_not_the_default() -> None:
    short = TransactionLogValue(producer_id=1).encode(1)
    long = TransactionLogValue(producer_id=1, previous_producer_id=2, client_transaction_version=2).encode(1)
    assert short[-1:] == b"\0"
    assert long == short[:-1] + b"\2" + b"\0\x08" + (2).to_bytes(8, "big") + b"\2\2\0\2"


def test_an_unknown_tag_is_skipped() -> None:
    raw = EndTxnRequest("t1", 7, 3, True).encode(3)[:-1] + b"\2" + b"\x05\3abc" + b"\x80\x01\0"
    assert EndTxnRequest.decode(raw, 0, 3) == (EndTxnRequest("t1", 7, 3, True), len(raw))


def test_a_known_tag_of_the_wrong_size_is_malformed() -> None:
    head = TransactionLogValue().encode(1)[:-1]
    for size in (0, 7, 9):
        with pytest.raises(Malformed, match="tagged field 0 claims"):
            TransactionLogValue.decode(head + b"\1\0" + bytes([size]) + bytes(9), 0, 1)


@pytest.mark.parametrize("version", [0, 3])
def test_a_null_where_none_may_be_is_malformed(version: int) -> None:
    null = b"\xff\xff" if version == 0 else b"\0"
    with pytest.raises(Malformed, match="transactional_id is null"):
        EndTxnRequest.decode(null + END_TXN_V0, 0, version)


@pytest.mark.parametrize("version", [1, 4])
def test_an_element_of_an_array_is_never_null_even_where_the_array_may_be(version: int) -> None:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    raw = DescribeConfigsRequest([resource(4, "1", ["@@"])]).encode(version)
    sized, null = (b"\0\2@@", b"\xff\xff") if version == 1 else (b"\3@@", b"\0")
    assert raw.count(sized) == 1
    with pytest.raises(Malformed, match="an element of configuration_keys is null"):
        DescribeConfigsRequest.decode(raw.replace(sized, null), 0, version)
    whole = DescribeConfigsRequest([resource(4, "1", None)])
    assert DescribeConfigsRequest.decode(whole.encode(version), 0, version)[0] == whole


def test_an_array_that_claims_more_than_the_frame_is_malformed() -> None:
    raw = b"\0\x02t1" + bytes(10) + b"\x7f\xff\xff\xff" + bytes(100)
    with pytest.raises(Malformed, match="claims 2147483647 elements"):
        AddPartitionsToTxnRequest.decode(raw, 0, 0)


def test_a_count_is_held_against_the_size_of_its_elements() -> None:
    """Sixty bytes could be sixty elements of one byte, but a partition of v3 has at least 14 bytes."""
    head = b"\3t1" + b"\2g" + bytes(10) + b"\0\0\0\1" + b"\1" + b"\0"
    raw = head + b"\2" + b"\2o" + b"\x3c" + bytes(60)
    with pytest.raises(Malformed, match="claims 59 elements"):
        TxnOffsetCommitRequest.decode(raw, 0, 3)


def test_a_request_cannot_have_elements_without_end() -> None:
    count = MAX_REQUEST_ELEMENTS + 1
    raw = write_uvarint(count + 1) + bytes(4 * count + 100)
    with pytest.raises(Malformed, match=f"{MAX_REQUEST_ELEMENTS} elements in all"):
        OffsetFetchRequest.decode(raw, 0, 8)


def test_a_string_longer_than_the_frame_is_malformed() -> None:
    with pytest.raises(Malformed, match="claims 32767, but"):
        EndTxnRequest.decode(b"\x7f\xff" + b"t1", 0, 0)
    with pytest.raises(Malformed, match="claims"):
        EndTxnRequest.decode(b"\xff\xff\xff\xff\x0f" + b"t1", 0, 3)


def test_a_string_longer_than_any_may_be_is_malformed() -> None:
    longest = "t" * MAX_STRING_BYTES
    request = InitProducerIdRequest(longest, 1000)
    assert InitProducerIdRequest.decode(request.encode(2), 0, 2)[0] == request
    with pytest.raises(Malformed, match="32768"):
        InitProducerIdRequest.decode(InitProducerIdRequest(longest + "t", 1000).encode(2), 0, 2)


def test_a_string_that_is_not_utf8_is_malformed() -> None:
    for raw in (b"\0\x02\xff\xfe", b"\0\x02\xc3("):
        with pytest.raises(Malformed, match="not UTF-8"):
            EndTxnRequest.decode(raw + END_TXN_V0[4:], 0, 0)


def test_a_varint_without_end_is_malformed() -> None:
    with pytest.raises(Malformed, match="longer than five bytes"):
        EndTxnRequest.decode(b"\x80" * 6 + bytes(40), 0, 3)


def test_tags_that_run_past_the_end_are_malformed() -> None:
    body = EndTxnRequest("t1", 7, 3, True).encode(3)[:-1]
    for tags in (b"\1", b"\1\x09", b"\1\x09\x05ab", b"\xff\xff\xff\xff\x07", b"\1\x09\xff\xff\xff\xff\x07"):
        with pytest.raises(Malformed):
            EndTxnRequest.decode(body + tags, 0, 3)


def test_a_known_tag_that_runs_past_the_end_is_malformed() -> None:
    body = FetchRequest().encode(12)[:-1]
    with pytest.raises(Malformed):
        FetchRequest.decode(body + b"\1\0\x7fab", 0, 12)


def test_defaults_are_those_of_the_definition() -> None:
    assert FetchRequest().max_bytes == 2147483647
    assert FetchRequest.FetchPartition().current_leader_epoch == -1
    assert ApiVersionsResponse().finalized_features_epoch == -1
    assert InitProducerIdRequest().producer_epoch == -1


def test_an_undefined_message_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no message is called NoSuchRequest"):
        _ = messages.NoSuchRequest  # type: ignore[attr-defined]


def test_the_types_of_the_messages_are_up_to_date() -> None:
    written = (resources.files("fencepost.protocol") / "messages.pyi").read_text()
    assert written == stubs.render(), "run: python -m fencepost.protocol.stubs"


def test_a_traceback_through_generated_code_shows_its_line() -> None:
    with pytest.raises(AttributeError) as raised:
        EndTxnRequest(transactional_id=7).encode(3)  # type: ignore[arg-type]
    frame = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert frame.filename == "<encode EndTxnRequest v3>"
    assert ".transactional_id.encode()" in (frame.line or "")
