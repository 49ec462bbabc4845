"""One call to a micro-batch, and none after one that failed, in this run or in a later one."""

from __future__ import annotations

import pytest

from fencepost.spark.checkpoint.query import RunningQuery
from fencepost.spark.driver.calls import Calls
from fencepost.spark.driver.remembered import OutputPlace, Remembered, Use, decode_remembered
from fencepost.spark.failures import SinkError

ID = "refunds-1"
PLACE = OutputPlace(ID, "Kq9S")


class Files:
    """A checkpoint in memory. is_full: like a disk."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.is_full = False

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def exists(self, path: str) -> bool:
        return path in self.files

    def write(self, path: str, text: str) -> None:
        if self.is_full:
            raise OSError("no space left on device")
        self.files[path] = text

    def remembered(self) -> Remembered | None:
        text = self.files.get("fencepost")
        return None if text is None else decode_remembered(text)


@pytest.fixture
def files() -> Files:
    return Files()


def run(files: Files, run_id: str = "run-1") -> RunningQuery:
    return RunningQuery("query", run_id, "file:/checkpoint", files, sources=())


def call(calls: Calls, query: RunningQuery, batch_id: int, error: Exception | None = None) -> None:
    calls.begin(query, batch_id)
    calls.run(PLACE)
    if error is None:
        calls.succeed(batch_id)
    else:
        calls.fail(batch_id, error, settled=PLACE)


def test_a_second_call_for_a_micro_batch_that_was_written_is_refused(files: Files) -> None:
    calls, query = Calls(ID), run(files)
    call(calls, query, 3)
    for _ in range(2):
        with pytest.raises(SinkError, match="was called for micro-batch 3 before") as refused:
            calls.begin(query, 3)
        calls.fail(3, refused.value, settled=PLACE)
    call(calls, query, 4)  # The refused call did no harm.


def test_a_call_after_one_that_failed_is_another_try(files: Files) -> None:
    calls, query = Calls(ID), run(files)
    call(calls, query, 3, ValueError("no"))
    calls.begin(query, 3)
    assert calls.is_again(3)
    calls.succeed(3)
    calls.begin(query, 4)
    assert not calls.is_again(4)
    assert not calls.remembered.failed


def test_every_micro_batch_after_a_failed_one_is_refused_with_the_first_failure(files: Files) -> None:
    calls, query = Calls(ID), run(files)
    call(calls, query, 3, ValueError("no space\nhint: buy some"))
    for batch_id in (4, 5):
        with pytest.raises(SinkError, match=r"micro-batch 3 failed \(ValueError: no space\)") as refused:
            calls.begin(query, batch_id)
        assert "the files 3 and .3.crc and those of later numbers in file:/checkpoint/commits, and 4 and" in str(
            refused.value
        )
        calls.fail(batch_id, refused.value, settled=PLACE)
    assert files.remembered() == Remembered({PLACE: Use("run-1", is_ended=True)}, {ID: 3})


def test_a_call_that_failed_before_it_knew_its_query_counts(files: Files) -> None:
    calls = Calls(ID)
    call(calls, run(files, "an earlier run"), 2)
    calls.fail(3, ValueError("who calls?"), settled=None)
    with pytest.raises(SinkError, match="micro-batch 3 failed"):
        calls.begin(run(files), 4)


def test_a_new_run_of_the_query_begins_anew(files: Files) -> None:
    calls = Calls(ID)
    call(calls, run(files), 3, ValueError("no"))
    calls.begin(run(files, "run-2"), 3)
    assert not calls.is_again(3), "Spark computes everything anew"
    calls.succeed(3)
    call(calls, run(files, "run-3"), 3)  # Spark did not record it.


@pytest.mark.parametrize("settled", [PLACE, None], ids=["settled", "unknown"])
def test_the_checkpoint_remembers_the_failure_and_whether_something_may_be_left_in_the_place(
    files: Files, settled: OutputPlace | None
) -> None:
    calls, query = Calls(ID), run(files)
    call(calls, query, 2)
    assert files.remembered() == Remembered({PLACE: Use("run-1")})
    calls.begin(query, 3)
    calls.run(PLACE)
    calls.fail(3, ValueError("no"), settled=settled)
    assert files.remembered() == Remembered({PLACE: Use("run-1", is_ended=settled == PLACE)}, {ID: 3})
    later = Calls(ID)
    call(later, run(files, "run-2"), 3)
    assert files.remembered() == Remembered({PLACE: Use("run-2")})


def test_a_place_that_an_earlier_run_left_is_kept_until_its_micro_batch_is_settled(files: Files) -> None:
    call(Calls(ID), run(files), 2)
    calls, elsewhere = Calls("changed"), OutputPlace("changed", "Kq9S")
    calls.begin(run(files, "run-2"), 3)
    calls.fail(3, SinkError("refused"), settled=elsewhere)
    assert files.remembered() == Remembered({PLACE: Use("run-1")}, {"changed": 3})


def test_the_refusal_to_go_on_after_a_failure_does_not_hide_that_failure(files: Files) -> None:
    call(Calls(ID), run(files), 3, ValueError("no"))
    calls = Calls(ID)
    calls.begin(run(files, "run-2"), 4)
    calls.fail(4, SinkError("refused"), settled=None)
    assert calls.remembered.failed == {ID: 3}
    calls.begin(run(files, "run-3"), 4)
    calls.run(PLACE)  # The user has said that it may go on.
    calls.fail(4, ValueError("no"), settled=None)
    assert calls.remembered.failed == {ID: 4}


def test_a_call_that_was_turned_away_counts_as_a_failure_unless_it_is_tried_again(files: Files) -> None:
    calls, query, busy = Calls(ID), run(files), SinkError("busy")
    call(calls, query, 2)
    calls.turn_away(3, busy, lambda: query)
    assert files.remembered() == Remembered({PLACE: Use("run-1")}, {ID: 3}), "it may be the last one of the run"
    call(calls, query, 3)
    calls.turn_away(4, busy, lambda: query)
    assert files.remembered() == Remembered({PLACE: Use("run-1")}, {ID: 4})
    for batch_id in (5, 6):
        with pytest.raises(SinkError, match=r"micro-batch 4 failed .SinkError: busy") as refused:
            calls.begin(query, batch_id)
        calls.turn_away(batch_id, busy, lambda: query)
        calls.fail(batch_id, refused.value, settled=None)


def test_a_micro_batch_is_not_complete_if_a_call_was_turned_away_in_the_middle_of_it(files: Files) -> None:
    calls, query, busy = Calls(ID), run(files), SinkError("busy")
    calls.turn_away(3, busy, lambda: query)
    calls.begin(query, 3)
    calls.check_complete(3)
    calls.turn_away(3, busy, lambda: query)
    with pytest.raises(SinkError, match=r"micro-batch 3 is not complete: .* .SinkError: busy"):
        calls.check_complete(3)


def test_the_sinks_of_one_function_do_not_overwrite_what_the_other_has_to_remember(files: Files) -> None:
    second = OutputPlace("second", "Kq9S")
    query = run(files)
    call(Calls(ID), query, 2)
    calls = Calls("second")
    calls.begin(query, 2)
    calls.run(second)
    calls.fail(2, ValueError("no"), settled=second)
    both = {PLACE: Use("run-1"), second: Use("run-1", is_ended=True)}
    assert files.remembered() == Remembered(both, {"second": 2})
    call(Calls(ID), run(files, "run-2"), 3)
    assert files.remembered() == Remembered({**both, PLACE: Use("run-2")}, {"second": 2})


def test_a_failure_is_told_though_the_checkpoint_cannot_remember_it(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    calls, query = Calls(ID), run(files)
    calls.begin(query, 3)
    files.is_full = True
    calls.fail(3, ValueError("no"), settled=PLACE)
    assert "cannot remember that micro-batch 3 failed" in caplog.text
    with pytest.raises(SinkError, match="micro-batch 3 failed"):
        calls.begin(query, 4)
