"""What a checkpoint remembers of the last run."""

from __future__ import annotations

import pytest

from fencepost.spark.checkpoint.offsets import BadCheckpoint
from fencepost.spark.driver.commit_note import CommitNote
from fencepost.spark.driver.remembered import (
    OutputPlace,
    Remembered,
    Use,
    decode_remembered,
    encode_remembered,
    refuse_after_failure,
    refuse_another_place,
)

PLACE = OutputPlace("refunds-1", "Kq9S")
QUERY, CHECKPOINT = "085a50be-a657-4fc4-a889-73ccf4206911", "file:/checkpoint"


SECOND, CHANGED = OutputPlace("second", "Kq9S"), OutputPlace("changed", "Kq9S")


@pytest.mark.parametrize(
    "remembered",
    [Remembered(), Remembered({PLACE: Use("1"), SECOND: Use("2", is_ended=True)}), Remembered({}, {"refunds-1": 0})],
    ids=repr,
)
def test_what_is_remembered_comes_back_from_its_text(remembered: Remembered) -> None:
    assert decode_remembered(encode_remembered(remembered)) == remembered


@pytest.mark.parametrize(
    "text",
    [
        *("", "mine", "[]", "{}"),
        '{"fencepost":2,"places":[],"failed":{}}',
        '{"fencepost":1,"places":[{"transactional.id":"a","cluster":null,"run":"1","ended":false}],"failed":{}}',
        '{"fencepost":1,"places":[{"transactional.id":"a","cluster":"b","run":"1"}],"failed":{}}',
        '{"fencepost":1,"places":[{"transactional.id":"a","cluster":"b","run":"1","ended":"no"}],"failed":{}}',
        '{"fencepost":1,"places":[],"failed":{"a":"3"}}',
        '{"fencepost":1,"places":[],"failed":3}',
    ],
)
def test_a_damaged_file_is_refused_and_not_guessed(text: str) -> None:
    with pytest.raises(BadCheckpoint, match=r"expected transactional\.ids and clusters, found"):
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
    assert refuse_another_place(7, {PLACE: Use("1")}, PLACE) is None
    assert refuse_another_place(7, {}, PLACE) is None
    assert refuse_another_place(7, {PLACE: Use("1", is_ended=True)}, now) is None
    assert refuse_another_place(7, {PLACE: Use("1", is_ended=True)}, now, was_set_back=True) is not None
    assert refuse_another_place(7, {PLACE: Use("1"), now: Use("1")}, now) is None, "the function has two sinks"
    refused = refuse_another_place(7, {PLACE: Use("1")}, now)
    assert refused is not None
    assert said in refused.reason
    way_out = f"`fencepost txn fence refunds-1 --bootstrap HOST:PORT` (of a broker of cluster {PLACE.cluster_id})"
    assert way_out in refused.reason, "the command needs the cluster, and another one than that of this run"
    assert "run_batch=7" in refused.reason


def test_the_command_of_a_refusal_can_be_pasted_whatever_the_id_is() -> None:
    for id_, line in (
        ("refunds of today", "fencepost txn fence 'refunds of today' --bootstrap HOST:PORT"),
        ("--yes", "fencepost txn fence --bootstrap HOST:PORT -- --yes"),
    ):
        refused = refuse_another_place(7, {OutputPlace(id_, "Kq9S"): Use("1")}, PLACE)
        assert refused is not None
        assert f"`{line}` (of a broker of cluster Kq9S)" in refused.reason


def test_a_place_that_is_new_replaces_those_that_its_run_has_not_used() -> None:
    """Else the way back to the old id, after a crash with the new one, would not be noticed."""
    assert Remembered({PLACE: Use("1")}).begin(CHANGED, "2").used == {CHANGED: Use("2")}
    both = Remembered({PLACE: Use("1"), SECOND: Use("1")})
    assert both.begin(PLACE, "2").used == {PLACE: Use("2"), SECOND: Use("1")}, "a crash before the second sink's turn"
    assert both.begin(PLACE, "2").begin(CHANGED, "2").used == {PLACE: Use("2"), CHANGED: Use("2")}


def test_a_failure_counts_for_its_own_id_and_one_of_an_id_that_never_wrote_for_every_id() -> None:
    remembered = Remembered({PLACE: Use("1"), SECOND: Use("1")}, {"second": 3})
    assert (remembered.failed_for("second"), remembered.failed_for("refunds-1")) == (3, None)
    elsewhere = remembered.fail("changed", 2)
    assert (elsewhere.failed_for("second"), elsewhere.failed_for("refunds-1")) == (2, 2)
    assert elsewhere.succeed("refunds-1").failed == {"second": 3}, "the id was set back"
    assert remembered.failed_for("new") == 3, "it may replace the one that failed"


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
    assert refuse_after_failure(6, 3, CommitNote("another", 5, "d"), QUERY, CHECKPOINT, None) is not None
