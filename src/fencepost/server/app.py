"""The broker as a process: a data folder, a cluster, listeners, a clock. `serve` runs it until a signal stops it."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import socket
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Barrier
from typing import TYPE_CHECKING

from fencepost.broker.cluster import Cluster, Disk
from fencepost.broker.config import Config
from fencepost.broker.controller import Controller
from fencepost.broker.metadata import logs_in
from fencepost.broker.rpcs import SeenRpc, find_rpcs
from fencepost.machines.log.interface import LogTailUnknown, Storage
from fencepost.machines.log.memory import MemoryStorage
from fencepost.server import memory
from fencepost.server.addresses import BACKLOG, CannotListen, endpoints, listen
from fencepost.server.complaints import Complaints, Denials
from fencepost.server.control import CrashPoints
from fencepost.server.listeners import Listener, addresses_by_listener, connect_listeners, open_listeners
from fencepost.server.live_node import STOPPED, UP, LiveNode
from fencepost.server.node_orders import NodeOrders
from fencepost.server.operator_log import Level, OperatorLog, ready_text, settings_line, starting_line, stopped_text
from fencepost.server.socket_server import SocketServer
from fencepost.server.startup import ensure_topics

if TYPE_CHECKING:
    from fencepost.server.control import Control
    from fencepost.server.metrics import MetricsServer

DISK_THREADS = 4
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(kw_only=True)
class Settings:
    host: str = "127.0.0.1"
    port: int = 9092
    data: str | None = None  # No folder: everything in memory, gone when the process ends.
    brokers: int = 1
    config: Config = field(default_factory=Config)
    # Topics that must exist: number of partitions by name, None for `num.partitions` or whatever the topic has.
    topics: Mapping[str, int | None] = field(default_factory=dict)
    metrics: tuple[str, int] | None = None  # The address for Prometheus.
    control: Control | None = None  # For tests: takes orders on stdin.
    log_level: Level = Level.INFO
    logs_txns: bool = False  # A line for each step of each transaction.


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class App:
    """Starts, runs and stops a broker; `fencepost broker` uses it, also in the child process of `fencepost.testing`."""

    def __init__(self, settings: Settings, log: OperatorLog | None = None) -> None:
        self.settings = settings
        self.log = log or OperatorLog(settings.log_level)
        self.nodes: list[LiveNode] = []
        self.now_ms = now_ms
        self.crash_points = CrashPoints(settings.config["fencepost.crash.at"])
        self.listeners: list[Listener] = []
        self.socket_servers: list[SocketServer] = []
        self._socket_servers_by_node: dict[int, SocketServer] = {}
        self._loop: asyncio.AbstractEventLoop
        self._threads = ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="fencepost-disk")
        self._denials: Denials
        self._metrics: MetricsServer | None = None
        self.metrics_port: int | None = None
        self._is_serving = False
        self._is_stopping = False

    async def start(self) -> list[Listener]:
        """Bind, recover, serve. Returns where the brokers listen; clients may be given other addresses."""
        began_ms = now_ms()
        self._loop = asyncio.get_running_loop()
        # All of them now: a thread that cannot be started later, for a sync, would leave its caller without an answer.
        all_there = Barrier(DISK_THREADS)
        try:
            for _ in range(DISK_THREADS):
                self._threads.submit(all_there.wait)
        except RuntimeError:
            all_there.abort()  # Else those that have begun would keep the process from ending.
            raise
        config = self.settings.config
        wanted = endpoints(config, self.settings.host, self.settings.port)
        self.listeners = open_listeners(wanted, config, self.settings.brokers, self.log.warning)
        try:
            storage = self._open_storage()
        except Exception:
            for listener in self.listeners:
                listener.close()
            raise
        self.log.info(starting_line(self.settings.data))
        self.log.info(settings_line(config))
        for warning in config.warnings():
            self.log.warning(warning)
        for listener in self.listeners:
            if listener.warning is not None:
                self.log.warning(listener.warning)
        crash_at = self.crash_points.reach if config["fencepost.crash.at"] else None
        self._denials = Denials(self.log.warning, self._loop.call_later)
        controller = Controller(storage, config, random.SystemRandom())
        connect_listeners(controller, self.listeners)

        def make_cluster(node_id: int) -> Cluster:
            return self._make_cluster(controller, node_id, crash_at)

        for node_id, _, _ in controller.addresses:
            cluster = make_cluster(node_id)
            controller.join(cluster)
            self.nodes.append(LiveNode(cluster, self._socket_servers_by_node, lambda: self.now_ms(), self._work_failed))
        try:
            self._recover(storage)
        except Exception:
            storage.close()
            raise
        try:
            for line in ensure_topics(self.cluster, self.settings.topics, now_ms()):
                self.log.info(line)
        except Exception:
            self._stop_clusters()
            raise
        for listener in self.listeners:
            if (problem := listener.without_users()) is not None:
                self.log.warning(problem)
        complaints = Complaints(self.log.warning, self.log.error)
        debug = self.log.debug if self.log.level <= Level.DEBUG else None
        for live in self.nodes:
            live.socket_server = SocketServer(live.node, complaints, live.alarm.after_work, self.die, debug)
            self.socket_servers.append(live.socket_server)
            if len(self.nodes) > 1:
                live.socket_server.handle = live.handle
                live.connect()
        self.node_orders = NodeOrders(
            self.nodes,
            controller,
            lambda: self.now_ms(),
            make_cluster,
            lambda node_id: [listener.bind_again(node_id) for listener in self.listeners],
            self._serve,
            self._work_failed,
            self.log.info,
        )
        if self.settings.metrics is not None:
            await self._serve_metrics(*self.settings.metrics)
        try:
            for live, sockets in zip(
                self.nodes, zip(*(listener.sockets for listener in self.listeners), strict=True), strict=True
            ):
                await self._serve(live, sockets)
        except CannotListen:
            self._stop_clusters()
            raise
        self._is_serving = True
        self.ring()  # Also sets the alarm: there may never be a client whose request would set it.
        self.log.info(ready_text(self.listeners, self.clusters, now_ms() - began_ms))
        return self.listeners

    @property
    def cluster(self) -> Cluster:
        """As the first node that is up has it."""
        return self.clusters[0]

    @property
    def clusters(self) -> list[Cluster]:
        """As each node that is up has it."""
        return [live.cluster for live in self.nodes if live.state is UP]

    def _make_cluster(self, controller: Controller, node_id: int, crash_at: Callable[[str], None] | None) -> Cluster:
        trace = self.log.txn if self.settings.logs_txns else None
        cluster = Cluster(
            controller.storage,
            controller.config,
            controller.rng,
            self.log.warning,
            crash_at,
            trace,
            node_id,
            controller,
        )
        if self.settings.data is not None:
            cluster.disk = self._disk
        cluster.addresses = addresses_by_listener(self.listeners)
        cluster.recent_rpcs = self._recent_rpcs
        cluster.on_denied = self._denials.add
        cluster.order_nodes = lambda order, then: self.node_orders.carry_out(order, then)
        return cluster

    async def _serve(self, live: LiveNode, sockets: Sequence[socket.socket]) -> None:
        """Accept connections: a node has a socket at each listener. Raises CannotListen."""
        for listener, sock in zip(self.listeners, sockets, strict=True):
            listen(sock)
            protocol = listener.protocol(live.socket_server, lambda: self.now_ms())
            live.servers.append(await self._loop.create_server(protocol, sock=sock, backlog=BACKLOG))

    def _work_failed(self, error: Exception) -> None:
        """A bug in work that no client waits for must not stop the broker."""
        if isinstance(error, LogTailUnknown):
            self.die(error)
        else:
            self.log.error("".join(traceback.format_exception(error)))

    async def _serve_metrics(self, host: str, port: int) -> None:
        # Imported here: the import takes a tenth of a second, which a broker without metrics saves.
        from fencepost.server.metrics import BrokerCollector, MetricsServer, Traffic, measure

        traffic = Traffic()
        for socket_server in self.socket_servers:
            measure(socket_server, traffic)
        collector = BrokerCollector(
            lambda: self.clusters, self.socket_servers, traffic, lambda: self.now_ms(), self._denials.counts
        )
        self._metrics = MetricsServer(collector, lambda: self._is_serving and not self._is_stopping)
        try:
            self.metrics_port = await self._metrics.start(host, port)
        except OSError as e:
            self._stop_clusters()
            raise CannotListen(
                f"cannot serve metrics on {host}:{port}: {e.strerror or e}\n\n"
                "hint: choose another address with --metrics HOST:PORT; port 0 picks a free one"
            ) from None
        self.log.info(f"metrics at http://{host}:{self.metrics_port}/metrics")

    def _recover(self, storage: Storage) -> None:
        if self.settings.data is None:
            self.cluster.start(now_ms())
            return
        from fencepost.server.startup import recover
        from fencepost.server.storage import DataFolder

        assert isinstance(storage, DataFolder)
        recover(storage, self.cluster, now_ms())

    def _open_storage(self) -> Storage:
        if self.settings.data is None:
            return MemoryStorage()
        from fencepost.server.storage import DataFolder

        return DataFolder(
            self.settings.data,
            flush=self.settings.config["fencepost.flush.on.commit"],
            defer=self._defer,
            stop=self.die,
            report=self.log.warning,
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

        kept = (kept for socket_server in self.socket_servers for kept in socket_server.kept_rpcs())
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
            except Exception as e:
                self._work_failed(e)

        self._threads.submit(run)

    def die(self, error: LogTailUnknown) -> None:
        """Stop at once: the disk and the state in memory may differ, and only recovery can find out."""
        if error.__cause__ is not None and not isinstance(error.__cause__, OSError):
            self.log.error("".join(traceback.format_exception(error.__cause__)))
        self.log.error(f"{error}\nhint: {error.hint}")
        os._exit(1)

    async def stop(self) -> None:
        """A clean stop: no new clients, state on disk, nothing to recover next time."""
        began_ms, connections = now_ms(), sum(len(socket_server.connections) for socket_server in self.socket_servers)
        self._is_stopping = True
        for live in self.nodes:
            for server in live.servers:
                server.close()
        if self._metrics is not None:
            self._metrics.close()
        self.unplug_nodes()
        for socket_server in self.socket_servers:
            socket_server.close()
        for live in self.nodes:
            live.alarm.cancel()
        await asyncio.sleep(0)  # Let the transports close.
        self._stop_clusters()
        self._threads.shutdown(wait=True)
        self.log.info(stopped_text(self.settings.data, self.clusters, connections, now_ms() - began_ms))

    def _stop_clusters(self) -> None:
        for live in self.nodes:
            if live.state is not STOPPED:
                live.cluster.save_snapshots()
        self.cluster.storage.close()

    def unplug_nodes(self) -> None:
        """For tests: cut the connections between the nodes, until `plug_nodes`."""
        for live in self.nodes:
            live.peers.unplug()

    def plug_nodes(self) -> None:
        for live in self.nodes:
            live.peers.plug()

    def ring(self) -> None:
        """Run the timers that are due, and set the alarms for the next ones."""
        for live in self.nodes:
            live.alarm.ring()


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _run(app: App, ready: Callable[[list[Listener]], None]) -> None:
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[int] = loop.create_future()

    def stop(number: int) -> None:
        if not stopping.done():
            stopping.set_result(number)

    for number in STOP_SIGNALS:
        # Under `nohup`, SIGHUP is ignored: the broker is meant to outlive its terminal.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda received, _: loop.call_soon_threadsafe(stop, received))
    listeners = await app.start()
    if app.settings.control is not None:
        app.settings.control.serve(app)
    ready(listeners)
    loop.call_later(memory.SHORTEST_INTERVAL_S, _collect_now_and_then, loop)
    received = await stopping
    # Another signal must not turn the clean end into a kill. The loop's own handlers would go with the loop.
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    app.log.info(f"{signal.Signals(received).name}: stopping")
    await app.stop()


def _collect_now_and_then(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_later(memory.collect(), _collect_now_and_then, loop)


def serve(settings: Settings, ready: Callable[[list[Listener]], None]) -> None:
    """Run a broker until SIGTERM, SIGHUP or Ctrl-C."""
    memory.tune()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_run(App(settings), ready))
