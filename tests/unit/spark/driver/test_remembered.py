"""What a checkpoint remembers of the place that its query writes to."""

from __future__ import annotations

import pytest

from fencepost.spark.checkpoint.offsets import BadCheckpoint
from fencepost.spark.driver.remembered import OutputPlace, decode_place, encode_place, refuse_another_place

PLACE = OutputPlace("refunds-1", "Kq9S")


def test_a_place_comes_back_from_its_text() -> None:
    assert decode_place(encode_place(PLACE)) == PLACE


@pytest.mark.parametrize("text", ["", "mine", "[]", "{}", '{"fencepost":2,"transactional.id":"a","cluster":"b"}'])
def test_a_damaged_file_is_refused_and_not_guessed(text: str) -> None:
    with pytest.raises(BadCheckpoint, match=r"expected a transactional\.id and a cluster, found"):
        decode_place(text)


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
    refused = refuse_another_place(7, PLACE, now)
    assert refused is not None
    assert said in refused.reason
    assert "fencepost txn fence refunds-1" in refused.reason
    assert "run_batch=7" in refused.reason
