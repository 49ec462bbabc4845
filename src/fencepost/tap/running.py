"""A tap that runs: until a signal ends it, or in a thread for the length of a `with` block."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from typing import Self, TypeVar

from fencepost.tap.decoding import WireEvent
from fencepost.tap.proxy import Proxy

T = TypeVar("T")
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP_TIMEOUT_S = 30.0


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(tap: Proxy, ready: Callable[[], None]) -> None:
    """Run until a signal, or until `show` raises an OSError. Raises OSError, PortUnusable and Unreached."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_until_signal(tap, ready))


async def _until_signal(tap: Proxy, ready: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        if not stopping.done():
            stopping.set_result(None)

    show = tap.show

    def show_or_stop(event: WireEvent) -> None:
        try:
            show(event)
        except OSError as e:  # Such as a reader of stdout that has gone.
            if not stopping.done():
                stopping.set_exception(e)

    tap.show = show_or_stop
    loop.set_exception_handler(lambda _, context: tap.complain(f"{context['message']}: {context.get('exception')!r}"))
    for number in STOP_SIGNALS:
        # Under `nohup`, SIGHUP is ignored: the tap is meant to outlive its terminal.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop)
    await tap.start()
    try:
        ready()
        await stopping
    finally:
        await tap.close()


class TapThread:
    """A tap on an event loop of its own, in a thread. `call` runs a function there and returns its result."""

    def __init__(self, tap: Proxy) -> None:
        self.tap = tap
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fencepost-tap", daemon=True)

    def start(self) -> None:
        """Raises PortUnusable and Unreached."""
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self.tap.start(), self._loop).result()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.tap.close(), self._loop).result(STOP_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_TIMEOUT_S)
        self._loop.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def call(self, function: Callable[[], T]) -> T:
        async def called() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(STOP_TIMEOUT_S)
