"""How record batches are divided into Produce requests."""

from __future__ import annotations

from fencepost.spark.task.sender import split_by_size


def test_requests_stay_below_the_limit_and_keep_every_partition() -> None:
    encoded = {("t", n): b"x" * 40 for n in range(7)} | {("u", 0): b"x" * 10}
    requests = split_by_size({"t": list(range(7)), "u": [0]}, encoded, 100)
    assert requests == [{"t": [0, 1]}, {"t": [2, 3]}, {"t": [4, 5]}, {"t": [6], "u": [0]}]


def test_small_record_batches_go_together_and_a_large_one_goes_alone() -> None:
    encoded = {("t", 0): b"x", ("t", 1): b"x" * 500, ("t", 2): b"x"}
    assert split_by_size({"t": [0, 2]}, encoded, 100) == [{"t": [0, 2]}]
    assert split_by_size({"t": [0, 1, 2]}, encoded, 100) == [{"t": [0]}, {"t": [1]}, {"t": [2]}]
