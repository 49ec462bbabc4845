"""One call to a micro-batch, and none after one that failed."""

from __future__ import annotations

import pytest

from fencepost.spark.driver.calls import Calls
from fencepost.spark.failures import SinkError

RUN, CHECKPOINT = "run-1", "file:/checkpoint"


def test_a_second_call_for_a_micro_batch_that_was_written_is_refused() -> None:
    calls = Calls()
    assert not calls.begin(RUN, 3, CHECKPOINT)
    calls.succeed(3)
    for _ in range(2):
        with pytest.raises(SinkError, match="was called for micro-batch 3 before") as refused:
            calls.begin(RUN, 3, CHECKPOINT)
        calls.fail(3, refused.value)
    assert not calls.begin(RUN, 4, CHECKPOINT), "the refused call did no harm"


def test_a_call_after_one_that_failed_is_another_try() -> None:
    calls = Calls()
    calls.begin(RUN, 3, CHECKPOINT)
    calls.fail(3, ValueError("no"))
    assert calls.begin(RUN, 3, CHECKPOINT)
    calls.succeed(3)
    assert not calls.begin(RUN, 4, CHECKPOINT)


def test_every_micro_batch_after_a_failed_one_is_refused_with_the_first_failure() -> None:
    calls = Calls()
    calls.begin(RUN, 3, CHECKPOINT)
    calls.fail(3, ValueError("no space\nhint: buy some"))
    for batch_id in (4, 5):
        with pytest.raises(SinkError, match=r"micro-batch 3 failed \(ValueError: no space\)") as refused:
            calls.begin(RUN, batch_id, CHECKPOINT)
        assert "the files 3 and .3.crc and those of later numbers in file:/checkpoint/commits, and 4 and" in str(
            refused.value
        )
        calls.fail(batch_id, refused.value)


def test_a_call_that_failed_before_it_knew_its_query_counts() -> None:
    calls = Calls()
    calls.begin("an earlier run", 2, CHECKPOINT)
    calls.succeed(2)
    calls.fail(3, ValueError("who calls?"))
    with pytest.raises(SinkError, match="micro-batch 3 failed"):
        calls.begin(RUN, 4, CHECKPOINT)


def test_a_new_run_of_the_query_begins_anew() -> None:
    calls = Calls()
    calls.begin(RUN, 3, CHECKPOINT)
    calls.fail(3, ValueError("no"))
    assert not calls.begin("run-2", 3, CHECKPOINT)
    calls.succeed(3)
    assert not calls.begin("run-3", 3, CHECKPOINT), "Spark did not record it"
