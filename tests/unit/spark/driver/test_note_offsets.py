"""The offset under which a commit note is stored."""

from __future__ import annotations

from fencepost.spark.driver.note_offsets import offset_of_note


def test_the_offset_is_the_end_of_the_partition_after_the_commit() -> None:
    assert offset_of_note(7, has_records=True) == 8, "Kafka's marker comes after the records"
    assert offset_of_note(7, has_records=False) == 7
    assert offset_of_note(0, has_records=False) == 0


def test_a_partition_of_unknown_size_gets_an_offset_that_every_broker_takes() -> None:
    assert offset_of_note(None, has_records=True) == 0
