"""Asks the questions of pages in worker threads, and repeats them while browsers follow them.

All browsers that ask about the same address at the same time share one question, so a cluster that hangs holds one
thread for each address, however many browsers come and go. A browser that is slow misses documents in between and
gets the last one, so nothing is queued. Runs on one event loop.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar

from fencepost.client.admin.topics import NO_SUCH_TOPIC
from fencepost.client.failures import BrokerError, ClientError
from fencepost.web.cluster import NoCluster, WatchedCluster
from fencepost.web.page import Document, Page, PageRefused, Params, SubjectNotFound

T = TypeVar("T")
WORKERS = 16
WORKERS_WITHOUT_CLUSTER = 8
MOST_SUBJECTS = 200
# After this time without an answer, another connection finds out whether the cluster is there at all.
DOUBT_AFTER_S = 2.0
# The pause after an answer is at least this many times the time that it took: a slow cluster is asked a quarter of the
# time.
PAUSED_FOR_ITS_TIMES = 3.0
# The clock of a document is not a change.
NOT_A_CHANGE = "now_ms"

DOCUMENT, AWAY, PROBLEM = "document", "away", "problem"
Query = Mapping[str, str]
Key = tuple[str, tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]


class LiveEvent(NamedTuple):
    name: str
    data: str


class Problem(NamedTuple):
    """Why there is no document: the status of HTTP, and what the page shows."""

    status: int
    error: str
    hint: str | None = None
    error_code: int | None = None


class TooManySubjects(PageRefused):
    pass


@dataclass(slots=True)
class _Subject:
    """One address that browsers follow."""

    followers: int = 0
    number: int = 0
    latest: LiveEvent | None = None
    # The last document as it was compared, and when it was made.
    compared: Any = None
    document: str | None = None
    at: float = float("-inf")
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    soon: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def publish(self, event: LiveEvent) -> None:
        self.latest = event
        self.number += 1
        self.changed.set()
        self.changed = asyncio.Event()


@dataclass(slots=True)
class _Question:
    """A question about one address, for all who wait for its answer."""

    waiting: int = 0
    # A thread works on it, and cannot be interrupted.
    has_begun: bool = False
    task: asyncio.Task[Document] | None = None


class Watch:
    def __init__(self, cluster: WatchedCluster, complain: Callable[[str], None]) -> None:
        """`complain` gets errors that are bugs of the workbench."""
        self.cluster = cluster
        self.complain = complain
        # Questions to a cluster that does not answer may take all of their threads, so the others have their own.
        self._threads = DaemonThreads(WORKERS, "fencepost-web")
        self._threads_without_cluster = DaemonThreads(WORKERS_WITHOUT_CLUSTER, "fencepost-web-own")
        self._thread_of_checks = DaemonThreads(1, "fencepost-web-check")
        self._check: asyncio.Future[None] | None = None
        self._subjects: dict[Key, _Subject] = {}
        self._questions: dict[Key, _Question] = {}

    async def run(self, page: Page, work: Callable[[], T]) -> T:
        """Does the work of a page, which may block."""
        threads = self._threads if page.needs_cluster else self._threads_without_cluster
        return await asyncio.get_running_loop().run_in_executor(threads, work)

    async def ask(self, page: Page, params: Params, query: Query) -> str:
        """The document of an address, as JSON. Raises ClientError as soon as the cluster is found to be away."""
        subject = self._subjects.get(key_of(page, params, query))
        if subject is not None and subject.document is not None and time.monotonic() - subject.at < page.refresh_s:
            return subject.document
        asked = asyncio.ensure_future(self._ask(page, params, query))
        try:
            if page.needs_cluster:
                await self._doubt(asked, _raise)
            return as_json(await asked)
        finally:
            asked.cancel()  # Unless it is done.

    async def _ask(self, page: Page, params: Params, query: Query) -> Document:
        key = key_of(page, params, query)
        question = self._questions.get(key)
        if question is None:
            question = self._questions[key] = _Question()
            question.task = asyncio.create_task(self._answer(key, question, page, params, query))
        assert question.task is not None
        question.waiting += 1
        try:
            return await asyncio.shield(question.task)
        finally:
            question.waiting -= 1
            if question.waiting == 0 and not question.has_begun:
                self._forget(key, question)
                question.task.cancel()

    async def _answer(self, key: Key, question: _Question, page: Page, params: Params, query: Query) -> Document:
        def ask() -> Document:
            question.has_begun = True
            return page.ask(self.cluster, params, query)

        try:
            return await self.run(page, ask)
        finally:
            self._forget(key, question)

    def _forget(self, key: Key, question: _Question) -> None:
        if self._questions.get(key) is question:
            del self._questions[key]

    async def follow(self, page: Page, params: Params, query: Query) -> AsyncIterator[LiveEvent]:
        """The document of an address whenever it changes, and what is wrong while there is none."""
        key = key_of(page, params, query)
        if key not in self._subjects and len(self._subjects) >= MOST_SUBJECTS:
            raise TooManySubjects(f"{MOST_SUBJECTS} addresses are followed already")
        subject = self._subjects.setdefault(key, _Subject())
        subject.followers += 1
        if subject.task is None:
            subject.task = asyncio.create_task(self._repeat(page, params, query, subject))
        seen = 0
        try:
            while True:
                if subject.number > seen and subject.latest is not None:
                    seen = subject.number
                    yield subject.latest
                else:
                    await subject.changed.wait()
        finally:
            subject.followers -= 1
            if subject.followers == 0:
                subject.task.cancel()
                self._subjects.pop(key, None)

    def look_soon(self, page: Page, params: Params) -> None:
        """Repeat the questions about an address now: an action may have changed the answer."""
        about = (page.path, tuple(sorted(params.items())))
        for key, subject in self._subjects.items():
            if key[:2] == about:
                subject.soon.set()
        for key in [key for key in self._questions if key[:2] == about]:
            del self._questions[key]  # Its answer may be from before the action.

    async def _repeat(self, page: Page, params: Params, query: Query, subject: _Subject) -> None:
        while True:
            began = time.monotonic()
            asked = asyncio.ensure_future(self._ask(page, params, query))
            try:
                if page.needs_cluster:
                    await self._doubt(asked, lambda e: self._lose(subject, e))
                self._take(subject, await asked)
            except Exception as e:
                self._lose(subject, e)
            finally:
                asked.cancel()  # Unless it is done: the last browser has left.
            subject.soon.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(subject.soon.wait(), pause_s(page.refresh_s, time.monotonic() - began))

    def _lose(self, subject: _Subject, error: Exception) -> None:
        """There is no document, for this reason, which is said once."""
        subject.compared = subject.document = None
        event = self._event_of(error)
        if event != subject.latest:
            subject.publish(event)

    async def _doubt(self, asked: asyncio.Future[Document], is_away: Callable[[ClientError], None]) -> None:
        """Say that the cluster is away while a question waits for it in vain. A slow answer is no reason."""
        while not (await asyncio.wait([asked], timeout=DOUBT_AFTER_S))[0]:
            try:
                await self._checked()
            except ClientError as e:
                if not asked.done():
                    is_away(e)

    async def _checked(self) -> None:
        """Raises ClientError if no broker answers. All who doubt at the same time share one check."""
        if self._check is None or self._check.done():
            self._check = asyncio.get_running_loop().run_in_executor(self._thread_of_checks, self.cluster.check)
            # The last browser may leave before the check ends.
            self._check.add_done_callback(lambda check: check.cancelled() or check.exception())
        await asyncio.shield(self._check)

    def _take(self, subject: _Subject, document: Document) -> None:
        compared = {name: value for name, value in document.items() if name != NOT_A_CHANGE}
        subject.at = time.monotonic()
        subject.document = as_json(document)
        if compared != subject.compared:
            subject.compared = compared
            subject.publish(LiveEvent(DOCUMENT, subject.document))

    def _event_of(self, error: Exception) -> LiveEvent:
        problem = self.problem_of(error)
        if problem.status != 503:
            return LiveEvent(PROBLEM, as_json(problem_document(problem)))
        since_ms = self.cluster.away_since_ms or time.time_ns() // 1_000_000
        return LiveEvent(AWAY, as_json({**problem_document(problem), "since_ms": since_ms}))

    def problem_of(self, error: Exception) -> Problem:
        """The problem of an error; what is a bug is complained about."""
        problem = problem_of(error)
        if problem.status == 500:
            self.complain(error_text(error))
        return problem


def pause_s(refresh_s: float, took_s: float) -> float:
    """How long to wait before a question is repeated whose answer took `took_s`."""
    return max(refresh_s - took_s, took_s * PAUSED_FOR_ITS_TIMES)


def _raise(error: ClientError) -> None:
    raise error


def key_of(page: Page, params: Params, query: Query) -> Key:
    return page.path, tuple(sorted(params.items())), tuple(sorted(query.items()))


def as_json(document: object) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def problem_document(problem: Problem) -> dict[str, object]:
    return {"status": problem.status, "error": problem.error, "hint": problem.hint, "error_code": problem.error_code}


def problem_of(error: Exception) -> Problem:
    what, _, hint = str(error).partition("\n\nhint: ")
    if isinstance(error, SubjectNotFound | NoCluster):
        return Problem(404, what, hint or None)
    if isinstance(error, PageRefused):
        return Problem(400, what, hint or None)
    if isinstance(error, BrokerError):
        is_missing = error.code in NO_SUCH_TOPIC
        return Problem(404 if is_missing else 502, what, hint or None, error.code)
    if isinstance(error, ClientError):
        return Problem(503, what, hint or "is the broker running? The page goes on as soon as it answers.")
    return Problem(500, f"the workbench failed: {type(error).__name__}: {error}", "its log on stderr has the details")


def error_text(error: Exception) -> str:
    import traceback

    return "".join(traceback.format_exception(error)).rstrip()


P = ParamSpec("P")


class DaemonThreads(Executor):
    def __init__(self, at_most: int, name: str) -> None:
        self._at_most = at_most
        self._name = name
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._count = 0
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as e:
                future.set_exception(e)

        self._work.put(run)
        with self._lock:
            if not self._idle.acquire(blocking=False) and self._count < self._at_most:
                self._count += 1
                threading.Thread(target=self._serve, name=f"{self._name}-{self._count}", daemon=True).start()
        return future

    def _serve(self) -> None:
        while True:
            work: Any = self._work.get()
            work()
            del work  # Nothing of the last question stays in memory.
            self._idle.release()
