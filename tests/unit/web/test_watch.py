"""Questions that are repeated while browsers follow them."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from fencepost.client.client import KafkaClient
from fencepost.client.failures import BrokerError, Unreachable
from fencepost.protocol import errors
from fencepost.web import watch as watching
from fencepost.web.cluster import WatchedCluster
from fencepost.web.page import Page, SubjectNotFound
from fencepost.web.watch import DaemonThreads, LiveEvent, TooManySubjects, Watch, pause_s, problem_of

SOON_S = 30.0
NO_CLUSTER = WatchedCluster(None)


def page(ask: Callable[[], Mapping[str, Any]], **more: Any) -> Page:
    given = {"path": "/x", "script": "x.js", "title": "X", "refresh_s": 0.01, "needs_cluster": False, **more}
    return Page(ask=lambda cluster, params, query: ask(), **given)


async def first(events: AsyncIterator[LiveEvent]) -> LiveEvent:
    return await asyncio.wait_for(anext(events), SOON_S)


def run(test: Callable[[Watch], Coroutine[Any, Any, None]], cluster: WatchedCluster = NO_CLUSTER) -> list[str]:
    complaints: list[str] = []
    asyncio.run(test(Watch(cluster, complaints.append)))
    return complaints


def test_a_document_is_sent_when_it_changes_and_not_for_its_clock() -> None:
    state = {"value": 1, "now_ms": 0}
    asked = threading.Semaphore(0)

    def ask() -> Mapping[str, Any]:
        state["now_ms"] += 1
        asked.release()
        return dict(state)

    async def test(watch: Watch) -> None:
        events = watch.follow(page(ask), {}, {})
        assert json.loads((await first(events)).data)["value"] == 1
        for _ in range(3):
            await asyncio.to_thread(asked.acquire)
        state["value"] = 2
        event = await first(events)
        assert (event.name, json.loads(event.data)["value"]) == ("document", 2)
        await events.aclose()  # type: ignore[attr-defined]

    assert run(test) == []


def test_browsers_that_follow_the_same_address_share_a_question_and_the_last_one_ends_it() -> None:
    running = threading.Semaphore(0)
    gate = threading.Event()
    count = 0

    def ask() -> Mapping[str, Any]:
        nonlocal count
        count += 1
        running.release()
        gate.wait()
        return {"count": count}

    async def test(watch: Watch) -> None:
        shared = page(ask)
        first_events, second_events = watch.follow(shared, {}, {}), watch.follow(shared, {}, {})
        waiting = [asyncio.create_task(first(events)) for events in (first_events, second_events)]
        await asyncio.to_thread(running.acquire)
        gate.set()
        assert {event.data for event in await asyncio.gather(*waiting)} == {'{"count":1}'}
        for events in (first_events, second_events):
            await events.aclose()  # type: ignore[attr-defined]
        assert watch._subjects == {}

    assert run(test) == []


def test_a_problem_that_stays_is_said_once() -> None:
    state = {"is_there": False}
    asked = threading.Semaphore(0)

    def ask() -> Mapping[str, Any]:
        asked.release()
        if not state["is_there"]:
            raise SubjectNotFound("there is no transactional id orders")
        return state

    async def test(watch: Watch) -> None:
        events = watch.follow(page(ask), {}, {})
        assert (await first(events)).name == "problem"
        for _ in range(4):
            await asyncio.to_thread(asked.acquire)
        state["is_there"] = True
        assert (await first(events)).name == "document"
        await events.aclose()  # type: ignore[attr-defined]

    assert run(test) == []


def test_an_error_is_an_event_and_the_page_goes_on_after_it() -> None:
    state: list[Exception | None] = [SubjectNotFound("there is no transactional id orders")]

    def ask() -> Mapping[str, Any]:
        if state[0] is not None:
            raise state[0]
        return {"is_back": True}

    async def test(watch: Watch) -> None:
        events = watch.follow(page(ask), {}, {})
        assert await first(events) == LiveEvent(
            "problem", '{"status":404,"error":"there is no transactional id orders","hint":null,"error_code":null}'
        )
        state[0] = Unreachable("no broker can be reached\n\nhint: start one")
        while (event := await first(events)).name == "problem":
            pass
        away = json.loads(event.data)
        assert (event.name, away["error"], away["hint"]) == ("away", "no broker can be reached", "start one")
        assert away["since_ms"] > 0
        state[0] = None
        while (event := await first(events)).name == "away":
            pass
        assert event == LiveEvent("document", '{"is_back":true}')
        await events.aclose()  # type: ignore[attr-defined]

    assert run(test) == []


@contextmanager
def cluster_away() -> Iterator[WatchedCluster]:
    """A cluster whose address is taken, and nothing listens there."""
    with socket.socket() as nothing_listens:
        nothing_listens.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{nothing_listens.getsockname()[1]}"
        yield WatchedCluster(lambda: KafkaClient({"bootstrap.servers": servers}, 1.0), servers)


def test_a_question_that_waits_in_vain_says_that_the_cluster_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "DOUBT_AFTER_S", 0.01)
    gate = threading.Event()
    with cluster_away() as cluster:

        def ask() -> Mapping[str, Any]:
            gate.wait()
            return {}

        async def test(watch: Watch) -> None:
            events = watch.follow(page(ask, needs_cluster=True), {}, {})
            event = await first(events)
            assert event.name == "away"
            assert json.loads(event.data)["since_ms"] == cluster.away_since_ms
            gate.set()
            await events.aclose()  # type: ignore[attr-defined]

        assert run(test, cluster) == []


def test_questions_that_the_cluster_does_not_answer_delay_neither_other_pages_nor_the_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "DOUBT_AFTER_S", 0.01)
    gate = threading.Event()
    with cluster_away() as cluster:

        def ask() -> Mapping[str, Any]:
            gate.wait()
            return {}

        async def test(watch: Watch) -> None:
            blocked = page(ask, needs_cluster=True)
            followed = [watch.follow(blocked, {}, {"page": str(n)}) for n in range(2 * watching.WORKERS)]
            try:
                assert {event.name for event in await asyncio.gather(*map(first, followed))} == {"away"}
                assert await asyncio.wait_for(watch.ask(page(dict), {}, {}), SOON_S) == "{}"
            finally:
                gate.set()
                for events in followed:
                    await events.aclose()  # type: ignore[attr-defined]

        assert run(test, cluster) == []


def test_browsers_that_come_and_go_hold_one_thread_for_an_address_of_a_cluster_that_hangs() -> None:
    running, gate = threading.Semaphore(0), threading.Event()

    def hang() -> Mapping[str, Any]:
        running.release()
        gate.wait()
        return {"value": 1}

    async def test(watch: Watch) -> None:
        hanging, other = page(hang, needs_cluster=True), page(dict, path="/y", needs_cluster=True)
        try:
            for n in range(2 * watching.WORKERS):
                leaving = asyncio.create_task(watch.ask(hanging, {}, {}))
                # The first one begins the question, and the others share it.
                await (asyncio.to_thread(running.acquire) if n == 0 else asyncio.sleep(0))
                leaving.cancel()
                with suppress(asyncio.CancelledError):
                    await leaving
            assert await asyncio.wait_for(watch.ask(other, {}, {}), SOON_S) == "{}"
            late = asyncio.create_task(watch.ask(hanging, {}, {}))
        finally:
            gate.set()
        assert await late == '{"value":1}'
        assert watch._questions == {}

    assert run(test) == []


def test_a_question_that_has_not_begun_is_dropped_when_its_last_browser_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "WORKERS", 1)
    running, gate, asked = threading.Semaphore(0), threading.Event(), []

    def hang() -> Mapping[str, Any]:
        running.release()
        gate.wait()
        return {}

    def ask() -> Mapping[str, Any]:
        asked.append(1)
        return {}

    async def test(watch: Watch) -> None:
        first_page, second_page = page(hang, needs_cluster=True), page(ask, path="/y", needs_cluster=True)
        holding = asyncio.create_task(watch.ask(first_page, {}, {}))
        await asyncio.to_thread(running.acquire)
        leaving = [asyncio.create_task(watch.ask(second_page, {}, {})) for _ in range(2)]
        await asyncio.sleep(0)
        for each in leaving:
            each.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        gate.set()
        await holding
        assert asked == []
        assert await watch.ask(second_page, {}, {}) == "{}"
        assert asked == [1]

    assert run(test) == []


def test_a_program_that_asks_a_cluster_that_hangs_is_soon_told_that_it_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "DOUBT_AFTER_S", 0.01)
    gate = threading.Event()
    with cluster_away() as cluster:

        def ask() -> Mapping[str, Any]:
            gate.wait()
            return {}

        async def test(watch: Watch) -> None:
            try:
                with pytest.raises(Unreachable):
                    await asyncio.wait_for(watch.ask(page(ask, needs_cluster=True), {}, {}), SOON_S)
            finally:
                gate.set()

        assert run(test, cluster) == []


def test_the_number_of_addresses_that_are_followed_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MOST_SUBJECTS", 1)

    async def test(watch: Watch) -> None:
        one = page(dict)
        events = watch.follow(one, {}, {})
        await first(events)
        with pytest.raises(TooManySubjects):
            await first(watch.follow(one, {}, {"page": "2"}))
        await events.aclose()  # type: ignore[attr-defined]

    assert run(test) == []


def test_a_bug_is_complained_about_and_an_answer_of_the_cluster_is_not() -> None:
    async def test(watch: Watch) -> None:
        assert watch.problem_of(ZeroDivisionError("division by zero")).status == 500
        assert watch.problem_of(BrokerError(errors.CLUSTER_AUTHORIZATION_FAILED, "x")).status == 502

    [complaint] = run(test)
    assert "ZeroDivisionError: division by zero" in complaint


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (SubjectNotFound("x"), 404),
        (BrokerError(errors.UNKNOWN_TOPIC_OR_PARTITION, "topic orders"), 404),
        (Unreachable("x"), 503),
    ],
)
def test_an_error_has_the_status_that_a_program_expects(error: Exception, status: int) -> None:
    assert problem_of(error).status == status


@pytest.mark.parametrize("took_s", [0.01, 0.5, 1.0, 9.0])
def test_a_slow_question_is_asked_a_quarter_of_the_time_at_most(took_s: float) -> None:
    assert took_s / (took_s + pause_s(1.0, took_s)) <= 0.25


def test_a_quick_question_is_repeated_at_its_interval() -> None:
    assert pause_s(1.0, 0.1) == pytest.approx(0.9)


def test_work_is_done_by_at_most_so_many_threads_and_its_errors_are_raised() -> None:
    threads = DaemonThreads(2, "test")
    gate = threading.Event()
    names = [threads.submit(lambda: gate.wait() and threading.current_thread().name) for _ in range(6)]
    gate.set()
    found = {future.result(SOON_S) for future in names}
    assert found <= {"test-1", "test-2"}
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 / 0).result(SOON_S)
    assert threads.submit(threading.current_thread).result(SOON_S).daemon
