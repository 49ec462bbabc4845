"""The broker as a process: a data folder, a cluster, listeners, a clock. `serve` runs it until a signal stops it."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fencepost.broker.cluster import BrokerAddress, Cluster, Disk
from fencepost.broker.config import Config
from fencepost.broker.metadata import logs_in
from fencepost.broker.node import Node
from fencepost.broker.rpcs import SeenRpc, find_rpcs
from fencepost.machines.log.interface import LogTailUnknown, Storage
from fencepost.machines.log.memory import MemoryStorage
from fencepost.server import memory
from fencepost.server.crash import CrashPoints
from fencepost.server.listener import Listener

if TYPE_CHECKING:
    from fencepost.server.control import Control
    from fencepost.server.metrics import MetricsServer

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class CannotListen(Exception):
    """The address is in use, or is not an address of this machine."""


@dataclass(kw_only=True)
class Settings:
    host: str = "127.0.0.1"
    port: int = 9092
    data: str | None = None  # No folder: everything in memory, gone when the process ends.
    brokers: int = 1
    config: Config = field(default_factory=Config)
    advertised_host: str | None = None
    metrics: tuple[str, int] | None = None  # The address for Prometheus.
    control: Control | None = None  # For tests: takes orders on stdin.


def _say(line: str) -> None:
    with suppress(OSError, ValueError):  # Standard error may be a file on the disk that is full.
        print(line, file=sys.stderr, flush=True)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class App:
    """Starts, runs and stops a broker; `fencepost broker` uses it, also in the child process of `fencepost.testing`."""

    def __init__(self, settings: Settings, log: Callable[[str], None] | None = None) -> None:
        self.settings = settings
        self.log = log or _say
        self.cluster: Cluster
        self.now_ms = now_ms
        self.crash_points = CrashPoints(settings.config["fencepost.crash.at"])
        self.listeners: list[Listener] = []
        self._servers: list[asyncio.Server] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._loop: asyncio.AbstractEventLoop
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="fencepost-disk")
        self._metrics: MetricsServer | None = None
        self.metrics_port: int | None = None

    async def start(self) -> list[BrokerAddress]:
        """Bind, recover, serve. Returns where clients can connect."""
        self._loop = asyncio.get_running_loop()
        sockets = _bind(self.settings)
        try:
            storage = self._open_storage()
        except Exception:
            for sock in sockets:
                sock.close()
            raise
        config = self.settings.config
        for warning in config.warnings():
            self.log(f"warning: {warning}")
        crash_at = self.crash_points.reach if config["fencepost.crash.at"] else None
        self.cluster = Cluster(storage, config, random.Random(), notice=self.log, crash_at=crash_at)
        if self.settings.data is not None:
            self.cluster.disk = self._disk
        first_id = config["broker.id"]
        host = self.settings.advertised_host or self.settings.host
        if host in ("0.0.0.0", "::"):
            host = socket.gethostname()
        self.cluster.brokers = [
            BrokerAddress(first_id + i, host, sock.getsockname()[1]) for i, sock in enumerate(sockets)
        ]
        try:
            self._recover(storage)
        except Exception:
            storage.close()
            raise
        self.cluster.recent_rpcs = self._recent_rpcs
        self.cluster.timers.on_earlier = self._set_alarm
        for broker in self.cluster.brokers:
            listener = Listener(Node(broker.node_id, self.cluster), self.log, self._after_work, self.die)
            self.listeners.append(listener)
        if self.settings.metrics is not None:
            await self._serve_metrics(*self.settings.metrics)
        for listener, sock in zip(self.listeners, sockets, strict=True):
            self._servers.append(await self._loop.create_server(listener.protocol, sock=sock, backlog=4096))
        self.ring()  # Also sets the alarm: there may never be a client whose request would set it.
        return self.cluster.brokers

    async def _serve_metrics(self, host: str, port: int) -> None:
        # Imported here: the import takes a tenth of a second, which a broker without metrics saves.
        from fencepost.server.metrics import BrokerCollector, MetricsServer, Traffic, measure

        traffic = Traffic()
        for listener in self.listeners:
            measure(listener, traffic)
        self._metrics = MetricsServer(BrokerCollector(self.cluster, self.listeners, traffic, lambda: self.now_ms()))
        try:
            self.metrics_port = await self._metrics.start(host, port)
        except OSError as e:
            self.cluster.stop()
            raise CannotListen(
                f"cannot serve metrics on {host}:{port}: {e.strerror or e}\n\n"
                "hint: choose another address with --metrics HOST:PORT; port 0 picks a free one"
            ) from None
        self.log(f"metrics at http://{host}:{self.metrics_port}/metrics")

    def _recover(self, storage: Storage) -> None:
        is_new = storage.load_metadata() is None
        if self.settings.data is None:
            self.cluster.start(now_ms())
            return
        from fencepost.server.storage import DataFolder, DataFolderUnusable

        assert isinstance(storage, DataFolder)
        if is_new and storage.strays():
            raise DataFolderUnusable(
                f"{storage.path} has logs ({storage.strays()[0]} ...), but not the document that says what they are",
                "restore the file fencepost.metadata, or choose a new folder",
            )
        self.cluster.start(now_ms())
        storage.note_cluster(self.cluster.cluster_id, self.cluster.brokers[0].node_id)
        # The logs that were not opened belong to topics that were being deleted when the last process died.
        storage.delete_strays()

    def _open_storage(self) -> Storage:
        if self.settings.data is None:
            return MemoryStorage()
        from fencepost.server.storage import DataFolder

        return DataFolder(
            self.settings.data,
            flush=self.settings.config["fencepost.flush.on.commit"],
            defer=self._defer,
            stop=self.die,
            report=self.log,
            missing=self.settings.config["fencepost.recovery.missing"],
            logs_in=logs_in,
            at=self.crash_points.reach,
            node_id=self.settings.config["broker.id"],
        )

    def _disk(self) -> Disk:
        path = os.path.abspath(self.settings.data or "")
        try:
            usage = shutil.disk_usage(path)
        except OSError:
            return Disk(path)
        return Disk(path, usage.total, usage.free)

    def _recent_rpcs(self, transactional_id: str) -> list[SeenRpc]:
        def name_of(topic_id: bytes) -> str:
            topic = self.cluster.topics_by_id.get(topic_id)
            return topic.name if topic is not None else topic_id.hex()

        kept = (kept for listener in self.listeners for kept in listener.kept_rpcs())
        return find_rpcs(transactional_id, kept, name_of)

    def _defer(self, work: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
        """Run `work` in a thread, then `then` on the loop."""

        def run() -> None:
            error: BaseException | None = None
            try:
                work()
            except BaseException as e:
                error = e
            self._loop.call_soon_threadsafe(go_on, error)

        def go_on(error: BaseException | None) -> None:
            try:
                then(error)
            except LogTailUnknown as e:
                self.die(e)
            except Exception:
                self.log(traceback.format_exc())

        self._threads.submit(run)

    def die(self, error: LogTailUnknown) -> None:
        """Stop at once: the disk may not hold what clients were promised, and only recovery can find out."""
        self.log(f"error: {error}\n\nhint: look at the disk; the next start recovers what is there")
        os._exit(1)

    async def stop(self) -> None:
        """A clean stop: no new clients, state on disk, nothing to recover next time."""
        for server in self._servers:
            server.close()
        if self._metrics is not None:
            self._metrics.close()
        for listener in self.listeners:
            listener.close()
        if self._alarm is not None:
            self._alarm.cancel()
        await asyncio.sleep(0)  # Let the transports close.
        self.cluster.stop()
        self._threads.shutdown(wait=True)

    # --- the clock ----------------------------------------------------------------------------------------

    def _after_work(self) -> None:
        """Run the timers that are due. The alarm is for a broker that has nothing else to do."""
        deadline_ms = self.cluster.timers.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self.now_ms():
            self.ring()

    def _set_alarm(self, deadline_ms: int) -> None:
        if self._alarm is not None:
            if self._alarm_ms <= deadline_ms:
                return
            self._alarm.cancel()
        self._alarm_ms = deadline_ms
        self._alarm = self._loop.call_later(max(deadline_ms - self.now_ms(), 0) / 1000, self.ring)

    def ring(self) -> None:
        """Run the timers that are due, and set the alarm for the next one."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        try:
            self.cluster.timers.advance(self.now_ms())
        except LogTailUnknown as e:
            self.die(e)
        except Exception:
            self.log(traceback.format_exc())
        deadline_ms = self.cluster.timers.next_deadline_ms()
        if deadline_ms is not None:
            self._set_alarm(deadline_ms)


def _bind(settings: Settings) -> list[socket.socket]:
    """One socket per broker: port 0 picks free ports, else PORT, PORT+1, and so on."""
    sockets: list[socket.socket] = []
    for i in range(settings.brokers):
        port = settings.port + i if settings.port else 0
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((settings.host, port))
        except OSError as e:
            for opened in [*sockets, sock]:
                opened.close()
            raise CannotListen(
                f"cannot listen on {settings.host}:{port}: {e.strerror}\n\n"
                "hint: choose another address with --listen HOST:PORT; port 0 picks a free one"
            ) from None
        sockets.append(sock)
    return sockets


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _run(app: App, ready: Callable[[list[BrokerAddress]], None]) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stopping.set))
    brokers = await app.start()
    if app.settings.control is not None:
        app.settings.control.serve(app)
    ready(brokers)
    loop.call_later(memory.SHORTEST_INTERVAL_S, _collect_now_and_then, loop)
    await stopping.wait()
    # Another signal must not turn the clean end into a kill. The loop's own handlers would go with the loop.
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    await app.stop()


def _collect_now_and_then(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_later(memory.collect(), _collect_now_and_then, loop)


def serve(settings: Settings, ready: Callable[[list[BrokerAddress]], None]) -> None:
    """Run a broker until SIGTERM or Ctrl-C."""
    memory.tune()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_run(App(settings), ready))
