"""Shuffles in the plans of a micro-batch, as far as Spark Connect shows them. It shows neither jobs nor stages.

So the sink refuses to write rows behind a shuffle, unless Spark itself gives up such a job instead of running a stage
again (`spark.stage.maxConsecutiveAttempts=1`). A write without a shuffle has one stage only, and the lease service
notices if Spark runs that one again. A micro-batch whose stream has a shuffle has one attempt, because the shuffle
files of a broken attempt cannot be removed.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from typing import Any, NamedTuple

from fencepost.spark.failures import SinkError

# In the text of `DataFrame.explain` and `StreamingQuery.explain`.
SHUFFLE = re.compile(r"(?<!Broadcast)Exchange ")
LINE = re.compile(r"(?P<lead>[ :]*?(?P<branch>[+:]- )?)(?P<node>[^ :].*)")
# Adaptive execution shows a plan that has run in both forms, one after the other.
RUN_PLANS, INITIAL_PLAN = ("== Final Plan ==", "== Current Plan =="), "== Initial Plan =="
PLAN = "== Physical Plan =="
MAX_ATTEMPTS = "spark.stage.maxConsecutiveAttempts"
ADAPTIVE = "spark.sql.adaptive.enabled"


class ConnectShuffles:
    """query_id: of the query that runs the micro-batch; None for a plain frame."""

    def __init__(self, session: Any, query_id: str | None, *, is_stateful: bool) -> None:
        self._session = session
        self._query_id = query_id
        self._is_stateful = is_stateful
        self._in_stream: bool | None = None

    @property
    def are_in_stream(self) -> bool:
        """Whether the rows of the micro-batch come from a shuffle, or may."""
        if self._in_stream is None:
            self._in_stream = self._query_id is not None and (
                self._is_stateful or may_shuffle(stream_plan(self._session, self._query_id))
            )
        return self._in_stream

    def check(self, frame: Any) -> None:
        """Before a write. Raises SinkError for a job whose repeated stages would not be seen."""
        # The plan of a micro-batch begins with `Scan ExistingRDD`: it does not show the stream before it.
        plan = frame._explain_string()
        settings = self._session.conf
        check_attempts(self.are_in_stream or SHUFFLE.search(plan) is not None, settings.get(MAX_ATTEMPTS, None))
        check_adaptive(count_shuffles(plan), settings.get(ADAPTIVE, "true"))


def stream_plan(session: Any, query_id: str) -> str:
    """The plan of the micro-batch that the query runs. Empty: the query is not there."""
    text = io.StringIO()
    for query in session.streams.active:
        if str(query.id) == query_id:
            with redirect_stdout(text):  # Spark has no other way that is public.
                query.explain()
    return text.getvalue()


def may_shuffle(plan: str) -> bool:
    """By the plan of a stream. True if it is no plan."""
    return PLAN not in plan or SHUFFLE.search(plan) is not None


class _Adaptive(NamedTuple):
    """A plan of adaptive execution within a plan, such as that of a cached frame.

    awaited: the columns at which branches of the plans around it follow later.
    """

    awaited: frozenset[int]
    is_initial: bool = False


def count_shuffles(plan: str) -> int:
    """How many shuffles compute the rows. Initial plans do not count, and neither do shuffles that are reused."""
    found = 0
    inside: list[_Adaptive] = []
    awaited: frozenset[int] = frozenset()
    for line in filter(None, map(LINE.fullmatch, plan.splitlines())):
        node = line["node"]
        if node in RUN_PLANS:
            inside.append(_Adaptive(awaited))
        elif node == INITIAL_PLAN:
            while inside and inside[-1].is_initial:
                inside.pop()  # It was within the plan whose initial form follows.
            if inside:
                inside[-1] = inside[-1]._replace(is_initial=True)
        else:
            _leave_ended(inside, line.start("branch"))
            awaited = frozenset(at for at, sign in enumerate(line["lead"]) if sign == ":")
            is_counted = not node.startswith("ReusedExchange ") and not any(one.is_initial for one in inside)
            found += is_counted and SHUFFLE.search(node) is not None
    return found


def _leave_ended(inside: list[_Adaptive], column: int) -> None:
    """Leave the initial plans that have ended before a branch at this column.

    Spark indents a plan within a plan too little, so its end shows only where a plan around it goes on. In doubt it has
    ended: then a shuffle may count twice, and none is missed.
    """
    for depth in reversed(range(len(inside))):
        if not inside[depth].is_initial:
            return
        if column in inside[depth].awaited:
            del inside[depth:]


def check_attempts(has_shuffle: bool, max_attempts: str | None) -> None:
    """Raises SinkError for rows behind a shuffle, unless Spark gives up a job instead of running a stage again."""
    if has_shuffle and max_attempts != "1":
        raise SinkError(
            f"the rows to write come from a shuffle, and {MAX_ATTEMPTS} is {max_attempts or 'not set'}, expected 1: "
            "with Spark Connect the sink cannot see whether Spark runs a stage again, perhaps with other rows, after "
            f"some were written\n\nhint: start the Spark Connect server with {MAX_ATTEMPTS}=1, so that Spark gives up "
            "such a job, and nothing of the micro-batch is committed"
        )


def check_adaptive(shuffles: int, adaptive: str) -> None:
    """Raises SinkError for shuffles behind each other that are jobs of their own: no setting ends all of them."""
    if shuffles > 1 and adaptive.lower() == "true":
        raise SinkError(
            f"the rows to write come from {shuffles} shuffles, and {ADAPTIVE} is true: each shuffle is a job of its "
            "own, and with Spark Connect the sink cannot see whether a later job repeats a part of an earlier one, "
            f"perhaps with other rows\n\nhint: set {ADAPTIVE} to false in the session of the query"
        )
