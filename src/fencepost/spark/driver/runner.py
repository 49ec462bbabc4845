"""Runs the micro-batches of a sink that owns its transactional id: skips those that Kafka has, and tries the others
until they are committed or cannot be."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fencepost.client.admin.configs import setting_of_every_broker
from fencepost.client.client import KafkaClient
from fencepost.client.failures import BadClientSetting, BrokerError, ClientError
from fencepost.protocol import errors
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.checkpoint.files import has_gateway
from fencepost.spark.checkpoint.offsets import BadCheckpoint, has_state, read_offsets, read_start
from fencepost.spark.checkpoint.query import (
    RunningQuery,
    check_planned,
    connect_query,
    is_read_from_checkpoint,
    running_query,
)
from fencepost.spark.driver.access import Access
from fencepost.spark.driver.adoption import ended_by_note, refuse_another_query, refuse_another_start
from fencepost.spark.driver.attempt import Attempts, Planned, Work, Write, now_ms
from fencepost.spark.driver.batch_transaction import BatchTransaction
from fencepost.spark.driver.calls import Calls
from fencepost.spark.driver.commit_note import CommitNote, TokenNote, UnreadableNote
from fencepost.spark.driver.decision import (
    RUN,
    SKIP,
    RunOrSkip,
    decide,
    decide_token,
    known_retention_ms,
    warn_of_token_retention,
)
from fencepost.spark.driver.lag_group import LagGroup
from fencepost.spark.driver.owner import TransactionOwner, glance_at_note
from fencepost.spark.driver.permissions import to_commit, to_move_group, to_own, to_use_token, to_write
from fencepost.spark.driver.progress import SKIPPED, BatchProgress, name_of
from fencepost.spark.driver.remembered import OutputPlace, Use, refuse_after_failure, refuse_another_place
from fencepost.spark.driver.time_used import Loss, TimeUsed
from fencepost.spark.failures import BatchBroken, BatchRefused, Refuse, SinkError
from fencepost.spark.settings import SinkSettings
from fencepost.spark.task.topics import patiently, pin

log = logging.getLogger("fencepost.spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The user's answers to questions that the sink cannot answer."""

    adopt: str | bool | None = None  # True names no query, so it adopts none.
    run_batch: int | None = None
    skip_batch: int | None = None
    max_attempts: int = 3


class MicroBatchRunner:
    """Creating one takes the transactional.id over; `close` gives it up.

    created_ms: when the user created the sink. No earlier run of the driver has planned a micro-batch after that.
    query: the query that is about to run; None if there is none. token: of the frame that is about to be written.
    """

    def __init__(
        self,
        settings: SinkSettings,
        choices: Choices,
        created_ms: int,
        calls: Calls,
        query: RunningQuery | None = None,
        token: str | None = None,
    ) -> None:
        self._settings = settings
        self._choices = choices
        self._created_ms = created_ms
        self._calls = calls
        self._client = KafkaClient(settings.client)
        self._source_client = KafkaClient(settings.source_client) if settings.source_client else self._client
        self._access = Access(self._client, settings.bootstrap_servers)
        self._source_access = (
            Access(self._source_client, str(settings.source_client["bootstrap.servers"]))
            if settings.source_client
            else self._access
        )
        try:
            # Before it takes the id over: a pipeline that could not write must not fence one that can.
            self._require(is_query=query is not None, token=token)
            if query is not None:
                self._check_adoption(query)
                if settings.topic is not None:
                    with self._access.explained():
                        pin(self._client, settings.topic)
            self.owner = self._take_over()
            patiently(self._client.refresh)  # For the id of the cluster.
        except BaseException:
            self._close_clients()
            raise
        self.place = OutputPlace(settings.transactional_id, self._client.cluster_id)
        self.group = _lag_group(settings, self._source_client)
        self.attempts = Attempts(settings, self._client, self.owner, self.group, self._access)
        self._query = query
        self._adopted: str | None = None  # The query whose work this one continues, once that was found to fit.
        # The commit note by which the last micro-batch was to run. Empty: it was refused or skipped.
        self._runs_after: tuple[CommitNote | UnreadableNote | None, ...] = ()
        self._planning_run: str | None = None  # The run of the query that was seen to plan.
        self._answered: int | None = None  # The last micro-batch that an answer of the user decided.
        self._has_warned = False
        self._has_checked_tokens = False

    def _take_over(self) -> TransactionOwner:
        settings = self._settings
        with self._access.explained():
            return TransactionOwner(
                self._client, settings.transactional_id, settings.timeout_ms, is_verified=settings.is_verified
            )

    def _check_adoption(self, query: RunningQuery) -> None:
        """Refuse a query that must not have the id, before it fences the query that has the id."""
        note = glance_at_note(self._client, self._settings.transactional_id)
        if refuse_another_query(note, query.query_id, self._choices.adopt) is None:
            return
        try:
            planned = read_offsets(query.files, 0, query.sources)  # Of a new checkpoint, the first micro-batch.
        except BadCheckpoint:
            planned = None
        refusal = refuse_another_query(note, query.query_id, self._choices.adopt, planned)
        assert refusal is not None, "it was refused before"
        raise BatchRefused(refusal.reason)

    def has_ended_query(self) -> bool | None:
        """Has the run of the query ended? None if there is no query, but plain frames only.

        With Spark Connect it is not known. The process of a foreachBatch function ends with its query, so no other sink
        will ask.
        """
        if self._query is None:
            return None
        return self._query.in_jvm is not None and not self._query.in_jvm.isActive()

    def close(self) -> None:
        self.attempts.close()
        self._close_clients()

    def _close_clients(self) -> None:
        self._client.close()
        self._source_client.close()

    def _require(self, *, is_query: bool, source_topics: Iterable[str] = (), token: str | None = None) -> None:
        """Raises AccessDenied if the cluster does not grant a permission that the sink knows it needs."""
        settings, id_ = self._settings, self._settings.transactional_id
        is_noted = is_query or token is not None
        group = to_move_group(settings.group_id, source_topics) if is_query and settings.group_id else []
        self._access.require(
            [
                *to_own(id_),
                *(to_commit(id_) if is_query else ()),
                *(to_use_token(id_, token) if token is not None else ()),
                *to_write([settings.topic] if settings.topic else [], is_noted=is_noted),
                *(group if self._source_access is self._access else ()),
            ]
        )
        if self._source_access is not self._access:
            self._source_access.require(group)

    def run_batch(self, query: RunningQuery, frame: Any, batch_id: int, write: Write) -> BatchProgress:
        """A micro-batch of a streaming query."""
        self._query, self._runs_after = query, ()
        self.attempts.settle()
        if self.group is not None:
            self.group.check_sources(query.kafka_servers)
        offsets = read_offsets(query.files, batch_id, query.sources)
        check_planned(query, batch_id, offsets)
        self._require(is_query=True, source_topics={topic for topic, _ in offsets.consumed})
        consumed = offsets.consumed if self.group and not self.group.is_elsewhere else {}
        planned = Planned(query.query_id, query.run_id, offsets, has_state(query.files))
        work = Work(frame, batch_id, write, consumed, planned)
        if self._is_committed(batch_id, planned):
            progress = self._skip(work)
        else:
            if self._calls.is_again(batch_id):
                self._prepare_another_try(work)
            self._calls.run(self.place)
            progress = self._try(work, 1 if planned.is_stateful else self._choices.max_attempts)
        if self.group and self.group.is_elsewhere:
            self.group.commit_afterwards(offsets.consumed, batch_id)
        return progress

    def _prepare_another_try(self, work: Work) -> None:
        """The user's function calls the sink again after a call that failed. Raises SinkError if that is unsafe."""
        assert work.planned is not None
        if work.planned.is_stateful:
            raise SinkError(
                f"micro-batch {work.batch_id} failed before in this run of the query, and a query with state cannot "
                "try it again: the state store expects a restart\n\nhint: let the exception leave the function that "
                "you give to foreachBatch, and start the query again"
            )
        self.attempts.forget(work, BatchBroken("an earlier call failed"))

    def write_frame(
        self, frame: Any, topic: str | None, token: str | None, micro_batch: str | None = None
    ) -> BatchProgress:
        """A plain frame, in a transaction without a query: no commit note, no source offsets. With a token: once.

        micro_batch: whose function writes it.
        """
        self._require(is_query=False, token=token)
        self.attempts.settle()
        note = None if token is None else TokenNote(token, topic or self._settings.topic, micro_batch=micro_batch)
        if note is not None:
            self._warn_of_token_retention()

        def write(frame: Any, transaction: BatchTransaction) -> object:
            return transaction.write(frame, topic)

        return self._try(Work(frame, -1, write, {}, None, note), self._choices.max_attempts)

    # --- skip or run ----------------------------------------------------------------------------------------

    def _is_committed(self, batch_id: int, planned: Planned) -> bool:
        """By the commit note that is there now. Raises BatchRefused if the note does not say.

        Also raises it for a micro-batch of an adopting query that does not start where the adopted one ended.
        """
        assert self._query is not None, "a micro-batch is of a query"
        remembered, note = self._calls.remembered, self.owner.note
        self._runs_after = ()
        left_out = refuse_after_failure(
            batch_id,
            remembered.failed_for(self._settings.transactional_id),
            note,
            planned.query_id,
            self._query.checkpoint,
            self._choices.skip_batch,
        )
        if left_out is not None:
            raise BatchRefused(left_out.reason)
        was_set_back = self._was_committed_elsewhere(batch_id, planned, remembered.used)
        moved = refuse_another_place(batch_id, remembered.used, self.place, was_set_back=was_set_back)
        ask = partial(
            decide,
            note,
            planned.query_id,
            batch_id,
            planned.offsets,
            now_ms=now_ms(),
            retention_ms=self._retention_ms(),
            created_ms=self._created_ms,
            was_planned_before=was_set_back or self._was_planned_before(planned.run_id, self._query),
            is_stateful=planned.is_stateful,
            was_registered_anew=self.owner.was_registered_anew,
            moved=moved,
            adopt=self._choices.adopt,
        )
        decision = ask(run_batch=self._choices.run_batch, skip_batch=self._choices.skip_batch)
        if isinstance(decision, Refuse):
            raise BatchRefused(decision.reason)
        if isinstance(refusal := ask(), Refuse):
            self._warn_of_answer(batch_id, decision, refusal)
        if isinstance(note, CommitNote) and note.query_id not in (planned.query_id, self._adopted):
            self._check_start(batch_id, planned, note, self._query)
            self._adopted = note.query_id
        if decision is SKIP:
            return True
        self._runs_after = (note,)
        return False

    @property
    def has_left_nothing(self) -> bool:
        """Is it known that nothing of the last micro-batch is committed, and that no transaction is open?"""
        return self.owner.is_settled and self._runs_after == (self.owner.note,)

    def _was_planned_before(self, run_id: str, query: RunningQuery) -> bool | None:
        """Did an earlier run of the query plan the micro-batch? None: that is not known."""
        was_planned_before = False if self._planning_run == run_id else is_read_from_checkpoint(query)
        if was_planned_before is False:
            self._planning_run = run_id  # From now on it plans every micro-batch.
        return was_planned_before

    def _check_start(self, batch_id: int, planned: Planned, note: CommitNote, query: RunningQuery) -> None:
        """Raises BatchRefused if a query that adopts another one does not start where that one ended.

        This driver owns the id, so the adopted query cannot move its group any more.
        """
        starts = [read_start(query.files, number, planned.offsets) for number in {batch_id, 0}]
        ended = ended_by_note(note)
        # In another cluster the group follows after the commit, so it does not tell. Nor does it tell of two sources.
        group = None if self.group is None or self.group.is_elsewhere or planned.offsets.reads_twice else self.group
        if group is not None and not ended.offsets:
            with self._access.explained():
                ended = replace(ended, offsets=group.committed({place for s in starts for place in s.offsets}))
        others = planned.offsets.others(query.sources)
        refusal = refuse_another_start(batch_id, starts, others, ended)
        if refusal is not None and self._choices.run_batch != batch_id:
            raise BatchRefused(refusal.reason)
        if refusal is not None:
            self._warn_of_answer(batch_id, RUN, refusal)

    def _warn_of_answer(self, batch_id: int, answer: RunOrSkip, refusal: Refuse) -> None:
        """An answer that a program has kept from an earlier accident may fit by chance."""
        if self._answered != batch_id:
            self._answered = batch_id
            name, does = ("skip_batch", "left out") if answer is SKIP else ("run_batch", "written")
            reason = refusal.reason.partition("\n\n")[0]
            log.warning("micro-batch %d is %s because of %s=%d, although %s", batch_id, does, name, batch_id, reason)

    def _was_committed_elsewhere(self, batch_id: int, planned: Planned, used: Mapping[OutputPlace, Use]) -> bool:
        """With a transactional.id of an earlier run: then the checkpoint was set back, too."""
        if self.place in used:
            return False
        ids = [
            place.transactional_id
            for place, use in used.items()
            if place.cluster_id == self.place.cluster_id and use.run_id != planned.run_id
        ]
        try:
            notes = [glance_at_note(self._client, id_) for id_ in ids]
        except BrokerError as e:  # The user of another transactional.id may lack the permission.
            log.warning("it is not known whether micro-batch %d was committed with %s: %s", batch_id, ids, e)
            return False
        return any(
            isinstance(note, CommitNote) and note.query_id == planned.query_id and note.batch_id >= batch_id
            for note in notes
        )

    def adopted_ends(self) -> Mapping[TopicPartition, int] | None:
        """Where the query to adopt ended in its Kafka sources. None: its commit note does not say."""
        note = self.owner.note
        return note.ends if isinstance(note, CommitNote) and note.query_id == self._choices.adopt else None

    def _retention_ms(self) -> int | None:
        """How long the brokers keep offsets. Needed only if there is no commit note."""
        if self.owner.note is not None:
            return None
        known_ms = patiently(self._ask_retention_ms)
        if known_ms is None and not self._has_warned:
            self._has_warned = True
            log.warning(
                "the brokers do not show offsets.retention.minutes: if this run ends before its first commit, the next "
                "one is refused, because it cannot know whether a commit note has expired\n\nhint: set "
                "fencepost.offsets.retention.minutes, or allow DescribeConfigs on the cluster"
            )
        return known_ms

    def _warn_of_token_retention(self) -> None:
        """At the first token of the sink. Never raises: a broker that does not answer now is no reason not to write."""
        if self._has_checked_tokens:
            return
        self._has_checked_tokens = True
        with suppress(ClientError):
            if warning := warn_of_token_retention(self._ask_retention_ms()):
                log.warning("%s", warning)

    def _ask_retention_ms(self) -> int | None:
        minutes = setting_of_every_broker(self._client, "offsets.retention.minutes")
        return known_retention_ms(minutes.values(), self._settings.retention_ms)

    def _skip(self, work: Work) -> BatchProgress:
        if work.planned is not None and work.planned.is_stateful:
            # The state store expects every micro-batch to run, so compute the rows and discard them.
            work.frame.write.format("noop").mode("overwrite").save()
        return BatchProgress(work.batch_id, SKIPPED)

    # --- attempts -------------------------------------------------------------------------------------------

    def _try(self, work: Work, max_attempts: int) -> BatchProgress:
        """Attempt it until it is committed, fails for good, or was broken too often."""
        too_slow_in_a_row = 0
        for number in range(1, max_attempts + 1):
            used = TimeUsed()
            try:
                with self._access.explained():
                    return self._attempt(work, number, used)
            except BatchBroken as e:
                loss = Loss(self._settings.timeout_ms, used.took_ms, used.waited_ms)
                too_slow_in_a_row = too_slow_in_a_row + 1 if loss.is_too_slow else 0
                if too_slow_in_a_row >= 2 or number == max_attempts:
                    self._forget_last(work, e)
                    if loss.is_timeout:
                        raise BatchBroken(loss.describe(str(e), too_slow_in_a_row)) from e
                    raise
                self.attempts.forget(work, e)
                log.warning("%s is run again (attempt %d): %s", name_of(work.batch_id), number + 1, e)
        raise AssertionError("max_attempts is at least 1")

    def _forget_last(self, work: Work, broken: BatchBroken) -> None:
        """After the last attempt at a plain frame, which the user may write again. A new run plans a stream anew."""
        if work.planned is not None:
            return
        try:
            self.attempts.forget(work, broken)
        except Exception as e:
            # It must not hide why the attempt was broken.
            log.warning(
                "rows and shuffle files of the broken attempt may still be used if the frame is written again: %s", e
            )

    def _attempt(self, work: Work, number: int, used: TimeUsed) -> BatchProgress:
        with used.waiting():
            identity = self.owner.begin()
        note: CommitNote | TokenNote | None = work.token
        if work.token is not None:
            written = decide_token(self.owner.read_token_notes(work.token.token), work.token)
            if isinstance(written, Refuse):
                raise BatchRefused(written.reason)
            if written is not None:
                return BatchProgress(work.batch_id, SKIPPED, records=written.records)
        if work.planned is not None:
            # Decide again: `begin` may have found a newer note, of another owner of the id.
            if self._is_committed(work.batch_id, work.planned):
                return self._skip(work)
            note = self.owner.next_note(work.planned.query_id, work.batch_id, work.planned.offsets)
        return self.attempts.make(work, identity, note, number, used)


def query_of(session: Any, batch_id: int, settings: SinkSettings, known: RunningQuery | None = None) -> RunningQuery:
    """The query that calls the sink with this micro-batch. known: the query of the micro-batch before."""
    if not has_gateway(session):
        return connect_query(session, settings.checkpoint_location, batch_id)
    query = running_query(session, known)
    if query is None:
        raise SinkError("foreachBatch was called outside a streaming query: use sink.write(frame) there")
    return query


def _lag_group(settings: SinkSettings, source_client: KafkaClient) -> LagGroup | None:
    if settings.group_id is None:
        return None
    return LagGroup(
        settings.group_id,
        source_client,
        settings.source_client or settings.client,
        is_elsewhere=settings.source_client is not None,
    )


def preview_starting_offsets(
    settings: SinkSettings, adopt: str | bool | None, topics: Iterable[str], otherwise: str | None
) -> str | None:
    """The group's offsets, read without taking the id over. None: they have to be read by the owner of the id.

    If the last transaction was of a query that is not to be adopted, no new query will start at these offsets: either
    that query itself continues with its checkpoint, or the sink refuses the new query. Neither has to fence now.
    """
    with ExitStack() as clients:
        client = clients.enter_context(KafkaClient(settings.client))
        source = clients.enter_context(KafkaClient(settings.source_client)) if settings.source_client else client
        Access(client, settings.bootstrap_servers).require(to_own(settings.transactional_id))
        note = glance_at_note(client, settings.transactional_id)
        if not isinstance(note, CommitNote) or note.query_id == adopt:
            return None
        group = _lag_group(settings, source)
        assert group is not None, "the caller checks that group.id is set"
        return group.starting_offsets(topics, otherwise, had_a_predecessor=False, is_final=False)


def refuse_missing_topic(settings: SinkSettings) -> None:
    """Raises BadClientSetting if the output topic does not exist, when a query is about to start.

    Any other problem with the topic may be over by the first micro-batch, which says what it is.
    """
    if settings.topic is None:
        return
    try:
        with KafkaClient(settings.client) as client:
            pin(client, settings.topic, patience_s=0)
    except BrokerError as e:
        if e.code == errors.UNKNOWN_TOPIC_OR_PARTITION:
            raise BadClientSetting(str(e)) from None
    except ClientError:
        pass


def describe_unnamed_adoption(settings: SinkSettings) -> str:
    """The message for adopt=True, with the id to write in its place."""
    with KafkaClient(settings.client) as client:
        note = glance_at_note(client, settings.transactional_id)
    last = f'write adopt="{note.query_id}", the query of the last transaction' if isinstance(note, CommitNote) else ""
    return "adopt=True does not say which query to adopt: it would fit any checkpoint by accident\n\nhint: " + (
        last or f"remove it: Kafka holds no commit note of transactional.id {settings.transactional_id}"
    )
