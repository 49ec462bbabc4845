"""Where a transactional id lives, and what a record of it may look like. Layouts: `test_hand_written_encoders`."""

from __future__ import annotations

import pytest

from fencepost.machines.txn.records import decode_key, decode_value, encode_value, java_string_hash, partition_for
from fencepost.machines.txn.states import Txn, TxnState
from fencepost.protocol.schema import Malformed
from fencepost.protocol.transaction_version import TV2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(1 << 31)),
        ("é", 233),
        ("😀", 1772899),  # Two UTF-16 units, as Java counts.
    ],
)
def test_strings_hash_as_in_java(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_ids_live_where_kafka_looks_for_them() -> None:
    assert partition_for("refunds-1", 50) == 39
    assert partition_for("polygenelubricants", 50) == 0  # abs(MIN_VALUE) counts as 0.
    assert partition_for("", 50) == 0
    assert partition_for("hello", 1) == 0


def test_records_of_later_versions_are_skipped() -> None:
    assert decode_key(b"\0\x07anything") is None
    assert decode_value("t1", b"\0\x07anything") is None


def test_a_damaged_record_is_malformed() -> None:
    value = encode_value(Txn("t1", 1, 0, 1000, TxnState.ONGOING, frozenset({("orders", 0)})), TV2)
    for end in range(len(value)):
        with pytest.raises(Malformed):
            decode_value("t1", value[:end])
