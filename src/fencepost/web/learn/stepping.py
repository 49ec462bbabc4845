"""A demo that pauses after each step, until the page asks for the next one.

The demo plays in a thread of its own. `next`, `play`, `pause`, `document` and `close` are for other threads.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fencepost.demo.report import DemoFailed
from fencepost.demo.stage import Stage
from fencepost.testing import Broker, BrokerFailed, Tap
from fencepost.web.learn.demos import Demo
from fencepost.web.learn.watching import BrokerWatcher, Document, Observation, fetches_in

PACE_S = 1.5
CLOSE_S = 2.0
# The longest that a broker allows by default. A run that is idle for less is closed.
LONGEST_TIMEOUT_MS = 900_000

READY, WORKING, PAUSED, DONE, FAILED, CLOSED = "ready", "working", "paused", "done", "failed", "closed"


class RunClosed(Exception):
    """The page was left, or nothing happened for too long."""


class DemoRun(Stage):
    transaction_timeout_ms = LONGEST_TIMEOUT_MS

    def __init__(self, demo: Demo, pace_s: float = PACE_S) -> None:
        self.demo = demo
        self._pace_s = pace_s
        self._changed = threading.Condition()
        self._is_allowed = False  # To do one more step.
        self._is_playing = False
        self._is_closed = False
        self._status = READY
        self._steps: list[Document] = []
        self._lines: list[str] = []
        self._drawing: Document | None = None
        self._counted: tuple[int, int] | None = None
        self._report: Document | None = None
        self._failure: Document | None = None
        self._broker: Broker | None = None
        self._tap: Tap | None = None  # Between the demo's readers and the broker.
        self._fetch_count = 0  # Of those that a step has shown.
        self._watcher = BrokerWatcher()
        self._thread = threading.Thread(target=self._perform, name=f"learn-{demo.name}", daemon=True)
        self._thread.start()

    # --- for the page -------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        with self._changed:
            return self._is_playing or self._status == WORKING

    def next(self) -> None:
        """Do one more step. While a step is being done, this changes nothing."""
        with self._changed:
            self._is_playing = False
            self._is_allowed = self._status in (READY, PAUSED)
            self._changed.notify_all()

    def play(self) -> None:
        """Do one step after the other, slowly enough to watch."""
        with self._changed:
            self._is_playing = True
            self._is_allowed = self._status in (READY, PAUSED)
            self._changed.notify_all()

    def pause(self) -> None:
        with self._changed:
            self._is_playing = False
            self._changed.notify_all()

    def await_pause(self, timeout_s: float) -> None:
        """Wait until the step is done, or the time has passed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_allowed and self._status != WORKING, timeout_s)

    def document(self) -> Document:
        with self._changed:
            return {
                "status": self._status,
                "playing": self._is_playing,
                "steps": list(self._steps),
                "lines": list(self._lines),
                "drawing": self._drawing,
                "counted": self._counted,
                "report": self._report,
                "failure": self._failure,
            }

    def close(self) -> None:
        """End the demo and its processes."""
        with self._changed:
            self._is_closed = True
            broker = self._broker if self._status == WORKING else None
            self._changed.notify_all()
        if broker is not None:
            # The step may take long. Without its broker it cannot change anything, and the folder can be removed.
            broker.kill()
        self._thread.join(CLOSE_S)

    # --- for the demo -------------------------------------------------------------------------------------

    def tell(self, line: str) -> None:
        """A line of the demo's own report, which belongs to the next step."""
        with self._changed:
            self._lines.append(line)

    def count(self, done: int, total: int) -> None:
        with self._changed:
            self._counted = (done, total)

    @contextmanager
    def broker(self, settings: Mapping[str, object] | None = None) -> Iterator[Broker]:
        """A broker for a demo that does not start its own, in a temporary folder."""
        with tempfile.TemporaryDirectory(prefix="fencepost-learn-", ignore_cleanup_errors=True) as folder:
            broker = Broker(data=folder, settings=settings)
            self.enter(broker)  # Before its start, so that `close` can end it then.
            with broker:
                yield broker

    @contextmanager
    def tapped(self, broker: Broker) -> Iterator[str]:
        """An address for readers. The steps show their fetches, which the broker does not remember."""
        with Tap(broker.bootstrap_servers, fetches=True) as tap:
            self._tap, self._fetch_count = tap, 0
            try:
                yield tap.bootstrap_servers
            finally:
                self._tap = None

    def enter(self, broker: Broker) -> None:
        with self._changed:
            if self._is_closed:
                raise RunClosed
            self._broker = broker
        self._watcher = BrokerWatcher()

    def let_time_pass(self, ms: int) -> None:
        assert self._broker is not None
        self._broker.advance_clock(ms)

    def step(self, sentence: str) -> None:
        look = self._look()
        seen = look.document(self._watcher.history)
        drawing = self._draw(look)
        with self._changed:
            self._drawing = drawing or self._drawing
            self._steps.append({"number": len(self._steps) + 1, "sentence": sentence, "lines": self._lines, **seen})
            self._lines = []
            self._wait(PAUSED)

    def _look(self) -> Observation:
        broker = self._broker
        if broker is None:
            return Observation()
        if broker.is_running:
            return self._with_fetches(self._watcher.look(broker.bootstrap_servers))
        return self._watcher.look_at_disk(broker.data) if broker.data is not None else Observation()

    def _with_fetches(self, look: Observation) -> Observation:
        if self._tap is None:
            return look
        fetches = fetches_in(self._tap.events)
        new, self._fetch_count = fetches[self._fetch_count :], len(fetches)
        return look._replace(fetches=new)

    def _draw(self, look: Observation) -> Document | None:
        """The transaction that the step changed last; None if it changed none."""
        changed = [rpc[0] for rpc in look.rpcs] + [record.transactional_id for record in look.records]
        if not changed or self._broker is None or not self._broker.is_running:
            return None
        return self._watcher.draw(self._broker.bootstrap_servers, changed[-1])

    def _wait(self, status: str) -> None:
        """Wait for the permission to continue, with the lock held. Raises RunClosed."""
        self._status = status
        self._changed.notify_all()
        if self._is_playing:
            self._changed.wait_for(lambda: self._is_closed or not self._is_playing, self._pace_s)
        self._changed.wait_for(lambda: self._is_closed or self._is_allowed or self._is_playing)
        if self._is_closed:
            raise RunClosed
        self._status = WORKING
        self._is_allowed = False

    def _perform(self) -> None:
        from confluent_kafka import KafkaException

        status, failure, report = DONE, None, None
        try:
            with self._changed:
                self._wait(READY)
            report = self.demo.play(self).document()
        except RunClosed:
            status = CLOSED
        except DemoFailed as e:
            status, failure = FAILED, {"problem": str(e), "hint": e.hint}
        except BrokerFailed as e:
            status, failure = FAILED, {"problem": str(e), "hint": "the broker of the demo has failed"}
        except KafkaException as e:
            reason = f"the client gave up: {e.args[0].str()}"
            status, failure = FAILED, {"problem": reason, "hint": "is the machine very busy?"}
        except Exception as e:  # A bug; the page must not wait for ever.
            status, failure = FAILED, {"problem": f"{type(e).__name__}: {e}", "hint": "this is a bug of the demo"}
        with self._changed:
            self._is_playing = self._is_allowed = False
            self._broker = None
            self._report, self._failure = report, failure
            self._status = CLOSED if self._is_closed else status
            self._changed.notify_all()
