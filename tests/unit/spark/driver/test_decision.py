"""Skip, run or refuse: every row of the table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost.spark.checkpoint.offsets import MicroBatchOffsets, SourceEnd
from fencepost.spark.driver.commit_note import CommitNote, TokenNote, UnreadableNote
from fencepost.spark.driver.decision import (
    HOUR_MS,
    RUN,
    SKIP,
    Decision,
    decide,
    decide_token,
    known_retention_ms,
    warn_of_token_retention,
)
from fencepost.spark.failures import Refuse

QUERY, OTHER = "085a50be-a657-4fc4-a889-73ccf4206911", "edda17f4-f356-4228-a42c-5847c4b3c4c4"
DIGEST, OTHER_DIGEST = "0123abcd", "ffff0000"
MINUTE_MS = HOUR_MS // 60
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS
NOW_MS = 1_795_000_000_000
KAFKA, FILES = SourceEnd("0", '{"in":{"0":1}}', {"in": {0: 1}}), SourceEnd("0", '{"logOffset":1}')
MOVED = Refuse("it moved")


def decide_for(
    note: CommitNote | UnreadableNote | None,
    batch_id: int,
    *,
    age_ms: int | None = 0,
    retention_ms: int | None = WEEK_MS,
    is_new: bool = False,
    was_planned_before: bool | None = None,
    is_stateful: bool = False,
    source: SourceEnd = KAFKA,
    moved: Refuse | None = None,
    adopt: str | bool | None = None,
    run_batch: int | None = None,
    skip_batch: int | None = None,
) -> Decision:
    planned_ms = None if age_ms is None else NOW_MS - age_ms
    return decide(
        note,
        QUERY,
        batch_id,
        MicroBatchOffsets((source,), DIGEST, planned_ms),
        now_ms=NOW_MS,
        retention_ms=retention_ms,
        created_ms=(planned_ms or 0) if is_new else (planned_ms or 0) + 1,
        was_planned_before=was_planned_before,
        is_stateful=is_stateful,
        moved=moved,
        adopt=adopt,
        run_batch=run_batch,
        skip_batch=skip_batch,
    )


def reason(decision: Decision) -> str:
    assert isinstance(decision, Refuse)
    return decision.reason


@pytest.mark.parametrize("last", [0, 5, 6])
def test_a_micro_batch_after_the_last_committed_one_runs(last: int) -> None:
    assert decide_for(CommitNote(QUERY, last, OTHER_DIGEST), 7) is RUN


def test_a_micro_batch_that_is_committed_with_the_same_offsets_is_skipped() -> None:
    assert decide_for(CommitNote(QUERY, 7, DIGEST), 7) is SKIP


def test_a_committed_micro_batch_whose_offsets_have_changed_is_refused_with_both_values() -> None:
    said = reason(decide_for(CommitNote(QUERY, 7, OTHER_DIGEST), 7))
    assert DIGEST in said
    assert OTHER_DIGEST in said
    assert "offsets/7" in said
    assert "run_batch=7" in said
    assert "skip_batch=7" in said


def test_a_checkpoint_that_was_set_back_is_refused() -> None:
    said = reason(decide_for(CommitNote(QUERY, 9, DIGEST), 7))
    assert "Kafka has micro-batch 9 of this query, but Spark runs micro-batch 7" in said


@pytest.mark.parametrize(("last", "digest"), [(9, DIGEST), (7, OTHER_DIGEST)])
def test_a_checkpoint_that_was_set_back_is_refused_with_the_way_that_neither_doubles_nor_loses_rows(
    last: int, digest: str
) -> None:
    said = reason(decide_for(CommitNote(QUERY, last, digest, ends={("in", 0): 5}), 7))
    assert "restore the newest checkpoint" in said
    assert f'set adopt="{QUERY}"' in said, "as for a lost checkpoint"
    assert """.option("startingOffsets", '{"in": {"0": 5}}')""" in said
    assert "Running it may write rows twice, skipping it may lose rows" in said


@pytest.mark.parametrize("batch_id", [0, 7, 9])
@pytest.mark.parametrize("digest", [DIGEST, OTHER_DIGEST])
def test_the_work_of_another_query_is_never_a_reason_to_skip(batch_id: int, digest: str) -> None:
    note = CommitNote(OTHER, 7, digest)
    said = reason(decide_for(note, batch_id, skip_batch=batch_id))
    assert QUERY in said
    assert OTHER in said
    assert f'set adopt="{OTHER}"' in said
    assert decide_for(note, batch_id, adopt=OTHER) is RUN


@pytest.mark.parametrize(
    ("adopt", "said"), [(True, "adopt=True does not say which query"), ("mine", "adopt='mine' names another one")]
)
def test_an_answer_that_does_not_name_the_last_query_adopts_nothing_and_learns_its_id(
    adopt: str | bool, said: str
) -> None:
    refusal = reason(decide_for(CommitNote(OTHER, 7, DIGEST), 0, adopt=adopt))
    assert said in refusal
    assert f'set adopt="{OTHER}"' in refusal
    assert decide_for(CommitNote(QUERY, 6, DIGEST), 7, adopt=adopt) is RUN, "there is nothing to adopt"


def test_the_first_micro_batch_of_a_new_pipeline_runs() -> None:
    assert decide_for(None, 0, age_ms=None, retention_ms=None) is RUN
    assert decide_for(None, 0, age_ms=0) is RUN


def test_a_first_micro_batch_so_old_that_its_note_may_have_expired_is_refused() -> None:
    assert "planned 63.0 days ago" in reason(decide_for(None, 0, age_ms=9 * WEEK_MS))
    assert decide_for(None, 0, age_ms=9 * WEEK_MS, run_batch=0) is RUN


@pytest.mark.parametrize(
    ("age_ms", "runs"),
    [
        (-5_000, True),
        (0, True),
        (WEEK_MS - HOUR_MS - 1, True),
        (WEEK_MS - HOUR_MS, False),
        (2 * WEEK_MS, False),
    ],
)
def test_without_a_note_a_micro_batch_runs_only_if_its_note_could_not_have_expired(age_ms: int, runs: bool) -> None:
    decision = decide_for(None, 7, age_ms=age_ms)
    assert (decision is RUN) == runs
    if not runs:
        assert "the broker keeps offsets for 7.0 days" in reason(decision)


def test_what_is_not_known_is_not_guessed() -> None:
    assert "when the micro-batch was planned" in reason(decide_for(None, 7, age_ms=None))
    for batch_id in (0, 7):
        said = reason(decide_for(None, batch_id, retention_ms=None))
        assert "the brokers do not show offsets.retention.minutes" in said
        assert "set fencepost.offsets.retention.minutes" in said
    assert "'mine'" in reason(decide_for(UnreadableNote("mine"), 7))


def test_a_micro_batch_that_this_run_planned_needs_no_note_while_one_that_waited_too_long_does() -> None:
    assert decide_for(None, 0, retention_ms=None, is_new=True) is RUN
    assert decide_for(None, 0, retention_ms=None, is_new=True, was_planned_before=True) is RUN, "with the same sink"
    assert isinstance(decide_for(None, 7, age_ms=2 * WEEK_MS, is_new=True), Refuse)


@pytest.mark.parametrize("retention_ms", [MINUTE_MS, HOUR_MS, 2 * HOUR_MS])
def test_however_briefly_brokers_keep_notes_a_micro_batch_that_this_run_planned_runs(retention_ms: int) -> None:
    for batch_id in (0, 7):
        for age_ms in (-5_000, 0, retention_ms - 1):
            assert decide_for(None, batch_id, age_ms=age_ms, retention_ms=retention_ms, is_new=True) is RUN
        assert isinstance(
            decide_for(None, batch_id, age_ms=retention_ms, retention_ms=retention_ms, is_new=True), Refuse
        )


@pytest.mark.parametrize("retention_ms", [WEEK_MS, None])
def test_without_a_note_a_micro_batch_of_an_earlier_run_whose_clock_was_far_ahead_is_refused(
    retention_ms: int | None,
) -> None:
    for was_planned_before in (True, None):
        said = reason(
            decide_for(
                None,
                7,
                age_ms=-8 * DAY_MS,
                retention_ms=retention_ms,
                is_new=True,
                was_planned_before=was_planned_before,
            )
        )
        assert "it was planned 8.0 days from now" in said
    here = decide_for(None, 7, age_ms=-8 * DAY_MS, is_new=True, was_planned_before=False)
    assert here is RUN, "this run planned it, so its clock has been set since"


def test_where_notes_expire_within_the_hour_that_clocks_may_differ_a_micro_batch_of_an_earlier_run_is_refused() -> None:
    said = reason(decide_for(None, 0, age_ms=5 * MINUTE_MS, retention_ms=HOUR_MS))
    assert "planned 5 minutes ago, while the broker keeps offsets for 60 minutes" in said
    assert "a note may have expired, because clocks may differ" in said


@pytest.mark.parametrize(
    ("told", "by_user_ms", "known_ms"),
    [
        (["10080"], None, WEEK_MS),
        (["10080", "60"], None, HOUR_MS),
        (["10080", None], None, None),
        ([None], HOUR_MS, HOUR_MS),
        ([], None, None),
        (["10080"], HOUR_MS, HOUR_MS),
        (["60"], WEEK_MS, HOUR_MS),
    ],
)
def test_the_shortest_retention_counts_and_one_that_a_broker_hides_is_not_known(
    told: list[str | None], by_user_ms: int | None, known_ms: int | None
) -> None:
    assert known_retention_ms(told, by_user_ms) == known_ms


def test_a_token_that_was_used_for_the_same_topic_writes_nothing_more() -> None:
    note, now = TokenNote("today", "refunds", 7), TokenNote("today", "refunds")
    assert decide_token([], now) is None
    assert decide_token([note, note], now) == note


def test_a_token_that_was_used_for_another_topic_is_refused_with_both() -> None:
    refusal = decide_token([TokenNote("today", "refunds", 7)], TokenNote("today", "audit"))
    assert isinstance(refusal, Refuse)
    assert "token 'today' was used to write to refunds, and now for audit" in refusal.reason
    assert "'today-audit'" in refusal.reason
    assert isinstance(decide_token([TokenNote("today", None, 7)], TokenNote("today", "audit")), Refuse)


def test_a_note_that_is_not_that_of_the_token_is_refused() -> None:
    for note in (UnreadableNote("?"), TokenNote("yesterday", "refunds", 7)):
        assert isinstance(decide_token([note], TokenNote("today", "refunds")), Refuse)


def test_a_token_of_another_micro_batch_is_refused_with_both() -> None:
    note, same = TokenNote("batch 1", "refunds", 7, "one"), TokenNote("batch 1", "refunds", micro_batch="one")
    assert decide_token([note], same) == note
    for elsewhere in (replace(note, micro_batch=None), TokenNote("batch 1", "refunds")):
        assert decide_token([note], elsewhere) == note, "outside a micro-batch the token alone counts"
    refusal = decide_token([note], replace(same, micro_batch="another one"))
    assert isinstance(refusal, Refuse)
    assert "was used in one, and now in another one" in refusal.reason


@pytest.mark.parametrize("source", [KAFKA, FILES], ids=["kafka", "files"])
def test_a_committed_micro_batch_that_is_run_again_as_it_was_planned_is_skipped_whatever_it_reads(
    source: SourceEnd,
) -> None:
    for planned_ms in (NOW_MS, None):  # Notes of earlier versions do not say when.
        assert decide_for(CommitNote(QUERY, 7, DIGEST, planned_ms=planned_ms), 7, source=source) is SKIP


@pytest.mark.parametrize(("planned_ms", "is_new"), [(NOW_MS - 5_000, False), (NOW_MS - 5_000, True), (None, True)])
def test_a_committed_micro_batch_that_spark_planned_anew_is_skipped_only_if_its_offsets_identify_its_rows(
    planned_ms: int | None, is_new: bool
) -> None:
    note = CommitNote(QUERY, 7, DIGEST, planned_ms=planned_ms)
    assert decide_for(note, 7, source=KAFKA, is_new=is_new) is SKIP
    said = reason(decide_for(note, 7, source=FILES, is_new=is_new))
    assert "Spark planned it anew at 2026-11-18" in said
    assert "run_batch=7" in said
    assert "skip_batch=7" in said
    assert decide_for(note, 7, source=FILES, is_new=is_new, run_batch=7) is RUN
    assert "timers and timeouts depend on" in reason(decide_for(note, 7, source=KAFKA, is_new=is_new, is_stateful=True))


@pytest.mark.parametrize("is_new", [True, False], ids=["clock says new", "clock says old"])
def test_for_a_note_that_does_not_say_when_the_micro_batch_was_planned_the_plan_tells_and_not_the_clock(
    is_new: bool,
) -> None:
    """A note of an earlier version. A sink that is created inside the function is younger than the plan."""
    note = CommitNote(QUERY, 7, DIGEST)
    anew = decide_for(note, 7, source=FILES, is_new=is_new, was_planned_before=False)
    assert "Spark planned it anew" in reason(anew)
    assert decide_for(note, 7, source=FILES, is_new=is_new, was_planned_before=True) is SKIP


def test_a_micro_batch_that_an_earlier_run_began_in_another_place_is_refused_unless_its_note_is_here() -> None:
    note = CommitNote(QUERY, 6, OTHER_DIGEST)
    for before in (note, None, CommitNote(OTHER, 3, DIGEST)):
        assert decide_for(before, 7, moved=MOVED, adopt=OTHER) == MOVED
        assert decide_for(before, 7, moved=MOVED, adopt=OTHER, run_batch=7) is RUN
        assert decide_for(before, 7, moved=MOVED, adopt=OTHER, skip_batch=7) is SKIP
        assert decide_for(before, 7, moved=MOVED, adopt=OTHER, is_new=True) is RUN, "no earlier run can have begun it"
        ahead = decide_for(before, 7, moved=MOVED, adopt=OTHER, is_new=True, was_planned_before=True)
        assert ahead == MOVED, "the clock of the earlier run was ahead"
    assert decide_for(CommitNote(QUERY, 7, DIGEST, planned_ms=NOW_MS), 7, moved=MOVED) is SKIP


def test_adopting_does_not_turn_the_other_rows_around() -> None:
    assert decide_for(CommitNote(QUERY, 7, DIGEST), 7, adopt=OTHER) is SKIP
    assert isinstance(decide_for(CommitNote(QUERY, 9, DIGEST), 7, adopt=OTHER), Refuse)
    assert isinstance(decide_for(None, 7, age_ms=WEEK_MS, adopt=OTHER), Refuse)


@pytest.mark.parametrize(
    "note", [CommitNote(QUERY, 7, OTHER_DIGEST), CommitNote(QUERY, 9, DIGEST), UnreadableNote("x"), None], ids=repr
)
def test_the_users_answer_holds_for_the_micro_batch_that_it_names_and_no_other(
    note: CommitNote | UnreadableNote | None,
) -> None:
    assert decide_for(note, 7, age_ms=WEEK_MS, run_batch=7) is RUN
    assert decide_for(note, 7, age_ms=WEEK_MS, skip_batch=7) is SKIP
    assert isinstance(decide_for(note, 7, age_ms=WEEK_MS, run_batch=6, skip_batch=8), Refuse)


def test_the_users_answer_does_not_turn_a_clear_case_around() -> None:
    assert decide_for(CommitNote(QUERY, 7, DIGEST), 7, run_batch=7) is SKIP
    assert decide_for(CommitNote(QUERY, 6, DIGEST), 7, skip_batch=7) is RUN
    assert decide_for(None, 0, skip_batch=0) is RUN


@pytest.mark.parametrize(
    ("retention_ms", "said"),
    [
        (None, "the brokers do not show offsets.retention.minutes"),
        (HOUR_MS, "brokers keep the note about a token for 60 minutes"),
        (DAY_MS - 1, "brokers keep the note about a token for 24.0 hours"),
        (DAY_MS, None),
        (WEEK_MS, None),
    ],
)
def test_a_job_is_warned_if_a_late_retry_of_its_token_may_write_the_frame_again(
    retention_ms: int | None, said: str | None
) -> None:
    warning = warn_of_token_retention(retention_ms)
    assert (warning is None) == (said is None)
    if said is not None:
        assert said in str(warning)
        assert "a job that is started again after that writes its frame again" in str(warning)
        assert "\n\nhint: " in str(warning)
