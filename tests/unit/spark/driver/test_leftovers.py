"""What Spark has to forget of a broken attempt, by the lineage of its RDDs."""

from __future__ import annotations

from fencepost.spark.driver.leftovers import find_leftovers
from fencepost.spark.driver.lineage import ComputedFrom

# A source, a shuffle, a second shuffle: RDD 3 is the micro-batch.
TWO_SHUFFLES = {1: ComputedFrom(()), 2: ComputedFrom((1,), (20,)), 3: ComputedFrom((2,), (30,))}


def forgotten(
    lineage: dict[int, ComputedFrom], roots: list[int], persisted: set[int], *, is_stream: bool
) -> tuple[set[int], set[int]]:
    """Shuffles, and RDDs with cached rows."""
    shuffles, cached = find_leftovers(lineage, roots, persisted, is_stream=is_stream)
    return set(shuffles), set(cached)


def test_all_shuffles_behind_the_micro_batch_are_forgotten() -> None:
    assert forgotten(TWO_SHUFFLES, [3], set(), is_stream=True) == ({20, 30}, set())


def test_rows_that_the_function_cached_are_forgotten_with_their_own_shuffles() -> None:
    lineage = {**TWO_SHUFFLES, 4: ComputedFrom((3,), (40,)), 5: ComputedFrom((4,)), 6: ComputedFrom((5,))}
    assert forgotten(lineage, [3], {5}, is_stream=True) == ({20, 30, 40}, {5})
    assert forgotten(lineage, [3], {5, 6}, is_stream=True) == ({20, 30, 40}, {5, 6})


def test_a_cached_frame_that_the_stream_reads_and_others_may_read_stays() -> None:
    static = {10: ComputedFrom(()), 11: ComputedFrom((10,), (110,))}
    lineage = {**static, 1: ComputedFrom(()), 2: ComputedFrom((1, 11), (20,)), 12: ComputedFrom((11,), (120,))}
    assert forgotten(lineage, [2], {11, 12}, is_stream=True) == ({20}, set())


def test_caches_of_other_queries_stay() -> None:
    lineage = {**TWO_SHUFFLES, 10: ComputedFrom(()), 11: ComputedFrom((10,), (110,))}
    assert forgotten(lineage, [3], {11}, is_stream=True) == ({20, 30}, set())


def test_cached_rows_that_no_shuffle_placed_stay() -> None:
    lineage = {1: ComputedFrom(()), 2: ComputedFrom((1,))}
    assert forgotten(lineage, [1], {2}, is_stream=True) == (set(), set())


def test_a_plain_frame_is_computed_anew_with_the_caches_that_it_is_made_of() -> None:
    lineage = {**TWO_SHUFFLES, 4: ComputedFrom((3,))}
    assert forgotten(lineage, [4], {2, 4}, is_stream=False) == ({20, 30}, {2, 4})
