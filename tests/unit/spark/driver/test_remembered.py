"""What a checkpoint remembers of the last run."""

from __future__ import annotations

import pytest

from fencepost.spark.checkpoint.offsets import BadCheckpoint
from fencepost.spark.driver.commit_note import CommitNote
from fencepost.spark.driver.remembered import (
    OutputPlace,
    Remembered,
    decode_remembered,
    encode_remembered,
    refuse_after_failure,
    refuse_another_place,
)

PLACE = OutputPlace("refunds-1", "Kq9S")
QUERY, CHECKPOINT = "085a50be-a657-4fc4-a889-73ccf4206911", "file:/checkpoint"


@pytest.mark.parametrize("remembered", [Remembered(), Remembered(PLACE), Remembered(None, 3), Remembered(PLACE, 0)])
def test_what_is_remembered_comes_back_from_its_text(remembered: Remembered) -> None:
    assert decode_remembered(encode_remembered(remembered)) == remembered


@pytest.mark.parametrize(
    "text",
    [
        *("", "mine", "[]", "{}"),
        '{"fencepost":2,"transactional.id":"a","cluster":"b","failed":null}',
        '{"fencepost":1,"transactional.id":"a","cluster":null,"failed":null}',
        '{"fencepost":1,"transactional.id":"a","cluster":"b","failed":"3"}',
    ],
)
def test_a_damaged_file_is_refused_and_not_guessed(text: str) -> None:
    with pytest.raises(BadCheckpoint, match=r"expected a transactional\.id and a cluster, found"):
        decode_remembered(text)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (
            OutputPlace("refunds-2", "Kq9S"),
            "with transactional.id refunds-1, but this run has transactional.id refunds-2",
        ),
        (
            OutputPlace("refunds-1", "other"),
            "with bootstrap.servers cluster Kq9S, but this run has bootstrap.servers cluster",
        ),
    ],
)
def test_another_place_is_refused_with_both_values_and_the_way_out(now: OutputPlace, said: str) -> None:
    assert refuse_another_place(7, PLACE, PLACE) is None
    assert refuse_another_place(7, None, PLACE) is None
    refused = refuse_another_place(7, PLACE, now)
    assert refused is not None
    assert said in refused.reason
    assert "fencepost txn fence refunds-1" in refused.reason
    assert "run_batch=7" in refused.reason


def test_a_micro_batch_after_one_that_failed_in_an_earlier_run_is_refused() -> None:
    refused = refuse_after_failure(4, 3, None, QUERY, CHECKPOINT, None)
    assert refused is not None
    assert "micro-batch 3 failed in an earlier run" in refused.reason
    assert "file:/checkpoint/commits" in refused.reason
    assert "skip_batch=3" in refused.reason


def test_a_failed_micro_batch_that_is_run_again_or_left_out_or_written_by_another_driver_is_no_reason_to_refuse() -> (
    None
):
    assert refuse_after_failure(3, 3, None, QUERY, CHECKPOINT, None) is None
    assert refuse_after_failure(4, None, None, QUERY, CHECKPOINT, None) is None
    assert refuse_after_failure(4, 3, None, QUERY, CHECKPOINT, 3) is None
    assert refuse_after_failure(6, 3, CommitNote(QUERY, 5, "d"), QUERY, CHECKPOINT, None) is None
    assert refuse_after_failure(6, 3, CommitNote(QUERY, 2, "d"), QUERY, CHECKPOINT, None) is not None
