"""Which batches of an answer are shown: none that its checksum does not vouch for."""

from __future__ import annotations

import pytest

from fencepost.client.admin.answers import NamedPartition
from fencepost.diagnose.collect.reading import DamagedBatch, sound_batches
from fencepost.protocol.batch import stamp
from fencepost.protocol.records import Record, encode_records

WHERE = NamedPartition("orders", 0)


def batch(offset: int, value: bytes = b"placed") -> bytes:
    return stamp(encode_records([Record(0, 1, None, value, ())] * 2), offset, 0)


def damaged(batch: bytes) -> bytes:
    return batch[:-3] + bytes([batch[-3] ^ 1]) + batch[-2:]


def test_batches_from_the_position_to_the_end_are_sound() -> None:
    answer = batch(0) + batch(2) + batch(4) + batch(6)
    assert [found.header.base_offset for found, _ in sound_batches(WHERE, answer, 3, 6)] == [2, 4]


def test_the_batches_before_a_damaged_one_are_shown_and_then_it_is_an_error() -> None:
    answer = batch(0) + damaged(batch(2)) + batch(4)
    assert [found.header.base_offset for found, _ in sound_batches(WHERE, answer, 0)] == [0]
    with pytest.raises(DamagedBatch, match=r"orders-0: the record batch at offset 2 is damaged: crc is 0x") as error:
        sound_batches(WHERE, answer, 2)
    assert error.value.next_offset == 4
    assert [found.header.base_offset for found, _ in sound_batches(WHERE, answer[len(batch(0)) * 2 :], 4)] == [4]


def test_a_damaged_batch_behind_the_end_is_none_of_the_answer() -> None:
    answer = batch(0) + damaged(batch(2))
    assert [found.header.base_offset for found, _ in sound_batches(WHERE, answer, 0, 2)] == [0]
