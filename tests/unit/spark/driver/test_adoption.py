"""A query that continues another one: does it start where that one ended?"""

from __future__ import annotations

import pytest

from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.checkpoint.offsets import BatchStart, parse_offsets
from fencepost.spark.driver.adoption import AdoptedEnd, refuse_another_query, refuse_another_start
from fencepost.spark.driver.commit_note import CommitNote
from fencepost.spark.failures import Refuse

OLD, NEW = "085a50be-a657-4fc4-a889-73ccf4206911", "edda17f4-f356-4228-a42c-5847c4b3c4c4"
DIGEST = "0123abcd"


def refusal(
    start: dict[TopicPartition, int],
    ended: dict[TopicPartition, int],
    *,
    batch_id: int = 0,
    digests: tuple[str, ...] = (),
    query_start: dict[TopicPartition, int] | None = None,
    others: tuple[str, ...] = (),
) -> Refuse | None:
    starts = [BatchStart(start, digests), *([BatchStart(query_start, ())] if query_start is not None else [])]
    return refuse_another_start(batch_id, starts, list(others), AdoptedEnd(OLD, ended, DIGEST))


def test_an_adopting_query_that_starts_where_the_other_one_ended_is_not_refused() -> None:
    offsets = {("in", 0): 100, ("in", 1): 90}
    assert refusal(offsets, offsets) is None


@pytest.mark.parametrize(("start", "said"), [(100, "written twice"), (200, "left out")])
def test_an_adopting_query_that_starts_elsewhere_is_refused_with_both_offsets_the_danger_and_the_option_to_type(
    start: int, said: str
) -> None:
    refused = refusal({("in", 2): start}, {("in", 2): 150, ("in", 10): 7}, batch_id=3)
    assert refused is not None
    assert f"micro-batch 3 starts at offset {start} of partition 2 of in, but query {OLD}" in refused.reason
    assert "ended at 150 there" in refused.reason
    assert f"would be {said}" in refused.reason
    assert "a checkpoint that no run has used" in refused.reason
    assert """.option("startingOffsets", '{"in": {"2": 150, "10": 7}}')""" in refused.reason
    assert "run_batch=3" in refused.reason


def test_the_refusal_of_another_start_names_the_first_partition_and_counts_the_others() -> None:
    start = {("in", 10): 1, ("in", 2): 1, ("in", 1): 7, ("early", 0): 5}
    refused = refusal(start, {("in", 10): 2, ("in", 2): 3, ("in", 1): 7, ("early", 0): 4})
    assert refused is not None
    assert "partition 0 of early" in refused.reason
    assert "ended at 4 there (they differ in 2 more partitions)" in refused.reason
    assert "left out" in refused.reason
    assert "written twice" in refused.reason, "the others differ in the other direction"


def test_a_partition_that_only_one_of_both_has_is_not_compared() -> None:
    assert refusal({("in", 0): 5, ("in", 1): 0}, {("in", 0): 5, ("out", 0): 7}) is None, "the topic grew"
    assert refusal({("other", 0): 5}, {("in", 0): 7}) is None, "it reads another topic"


def test_a_partition_that_is_new_has_to_be_read_from_its_beginning() -> None:
    """Spark's own error for a partition that is not in startingOffsets offers the latest offset."""
    refused = refusal({("in", 0): 5, ("in", 1): 7}, {("in", 0): 5})
    assert refused is not None
    assert f"starts at offset 7 of partition 1 of in, but query {OLD}" in refused.reason
    assert "had read nothing there: the rows in between would be left out" in refused.reason
    assert """'{"in": {"0": 5, "1": -2}}'""" in refused.reason


def test_where_only_the_digest_of_the_end_is_known_the_start_has_to_have_it() -> None:
    assert refusal({("in", 0): 5}, {}, digests=("ffff", DIGEST)) is None
    refused = refusal({("in", 0): 5}, {}, digests=("ffff",))
    assert refused is not None
    assert f"its digest {DIGEST} is not that of this start" in refused.reason
    assert refusal({}, {("in", 0): 5}) is not None, "the checkpoint does not say where the micro-batch starts"


def test_a_source_that_does_not_say_where_it_starts_needs_the_word_of_the_user() -> None:
    same = {("in", 0): 5}
    refused = refusal(same, same, others=("FileStreamSource[file:/in]",), digests=(DIGEST,))
    assert refused is not None
    assert "this query reads FileStreamSource[file:/in]" in refused.reason
    assert """.option("startingOffsets", '{"in": {"0": 5}}')""" in refused.reason, "the answer is not only for files"


def test_a_kafka_source_that_starts_elsewhere_is_refused_first_though_the_user_has_to_vouch_for_another_source() -> (
    None
):
    refused = refusal({("in", 0): 0}, {("in", 0): 5}, others=("FileStreamSource[file:/in]",))
    assert refused is not None
    assert "starts at offset 0 of partition 0 of in" in refused.reason
    assert "would be written twice" in refused.reason


def test_micro_batches_of_the_adopting_query_that_wrote_nothing_may_lie_in_between() -> None:
    assert refusal({("in", 0): 9}, {("in", 0): 5}, batch_id=2, query_start={("in", 0): 5}) is None
    assert refusal({("in", 0): 9}, {("in", 0): 5}, batch_id=2, query_start={("in", 0): 4}) is not None


def test_a_query_that_meets_the_work_of_another_one_is_told_how_to_continue_it() -> None:
    note = CommitNote(OLD, 7, DIGEST, ends={("in", 0): 5})
    refused = refuse_another_query(note, NEW, None)
    assert refused is not None
    assert f'set adopt="{OLD}"' in refused.reason
    assert """.option("startingOffsets", '{"in": {"0": 5}}')""" in refused.reason


def test_the_option_to_type_has_the_partitions_that_are_new_because_spark_wants_every_one() -> None:
    note = CommitNote(OLD, 7, DIGEST, ends={("in", 0): 5})
    grown = parse_offsets('v1\n{}\n{"in":{"0":9,"1":4}}')
    refused = refuse_another_query(note, NEW, None, grown)
    assert refused is not None
    assert """.option("startingOffsets", '{"in": {"0": 5, "1": -2}}')""" in refused.reason
    assert "(-2: 1 new partition, from the beginning)" in refused.reason
    elsewhere = refusal({("in", 0): 0, ("in", 1): 0}, {("in", 0): 5})
    assert elsewhere is not None
    assert """'{"in": {"0": 5, "1": -2}}'""" in elsewhere.reason
    other = refuse_another_query(note, NEW, None, parse_offsets('v1\n{}\n{"other":{"0":9}}'))
    assert other is not None
    assert """'{"in": {"0": 5}}'""" in other.reason, "a query that reads another topic does not continue this one"


def test_a_query_over_files_is_told_of_rows_and_not_of_offsets() -> None:
    refused = refuse_another_query(CommitNote(OLD, 7, DIGEST), NEW, None, parse_offsets('v1\n{}\n{"logOffset":1}'))
    assert refused is not None
    assert "a checkpoint that no run has used and only rows that are not in the output topics yet" in refused.reason
    assert "starting_offsets" not in refused.reason
    unknown = refusal({}, {}, others=("FileStreamSource[file:/in]",))
    assert unknown is not None
    assert "a checkpoint that no run has used" in unknown.reason, "the refused one has planned the rows already"
    assert "set run_batch=0" in unknown.reason
