"""The broker as a process, without clients: errors after work in other threads."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fencepost.machines.log.interface import HalfDone, LogTailUnknown
from fencepost.server.app import App, Settings
from fencepost.server.operator_log import Level, OperatorLog


@pytest.mark.parametrize("error", [LogTailUnknown("cutting the file failed"), ValueError("a bug")])
def test_an_error_after_work_in_another_thread_is_not_only_logged_by_the_loop(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    died: list[LogTailUnknown] = []

    async def story() -> None:
        app = App(Settings(port=0), OperatorLog(Level.WARNING, lines.append))
        monkeypatch.setattr(app, "die", died.append)
        await app.start()
        done = asyncio.Event()

        def then(_: BaseException | None) -> None:
            done.set()
            raise error

        app._defer(lambda: None, then)
        await asyncio.wait_for(done.wait(), 60)
        await app.stop()

    asyncio.run(story())
    if isinstance(error, LogTailUnknown):
        assert (died, lines) == ([error], [])
    else:
        assert died == []
        assert lines[-1].endswith("ERROR   ValueError: a bug")


def test_a_broker_that_gets_no_more_threads_can_still_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def story() -> None:
        app = App(Settings(port=0), OperatorLog(Level.ERROR, lambda line: None))
        await app.start()
        done: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        with monkeypatch.context() as system:
            system.setattr(threading.Thread, "start", refuse)
            app._defer(lambda: None, done.set_result)
            assert await asyncio.wait_for(done, 60) is None
        await app.stop()

    asyncio.run(story())


def test_a_broker_that_does_not_get_all_its_threads_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    start, left = threading.Thread.start, [1, 1]

    def refuse_the_third(thread: threading.Thread) -> None:
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        start(thread)

    app = App(Settings(port=0), OperatorLog(Level.ERROR, lambda line: None))
    with monkeypatch.context() as system:
        system.setattr(threading.Thread, "start", refuse_the_third)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            asyncio.run(app.start())
    app._threads.shutdown(wait=True)


def test_a_broker_that_stops_itself_says_why_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the traceback of a bug; an error of the disk needs none."""
    lines: list[str] = []
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    app = App(Settings(), OperatorLog(Level.ERROR, lines.append))
    bug = ValueError("a bug")
    stops = {LogTailUnknown("sync failed"): OSError("the disk is gone"), HalfDone("orders-0: half done", bug): bug}
    for error, cause in stops.items():
        error.__cause__ = cause
        app.die(error)
    assert [line.partition("ERROR   ")[2] for line in lines] == [
        "sync failed",
        "hint: check the disk; the next start recovers the data that is on it",
        "ValueError: a bug",
        "orders-0: half done: ValueError: a bug",
        "hint: the next start makes the state from what is on disk; please report this, unless memory was short",
    ]
    assert codes == [1, 1]
