"""A broker in a child process, for the length of a `with` block.

    with Broker() as broker:                      # in memory; Broker(data=path) on disk
        Producer({"bootstrap.servers": broker.bootstrap_servers})
    with Broker(brokers=3) as broker:             # nodes 1, 2 and 3
        broker.nodes.stop(2)                      # Others lead its partitions when this returns.

The child is `python -m fencepost broker`, the same program that a user runs, so `kill` is a real kill -9 and `restart`
a real recovery. It ends when its parent ends, in whatever way. `process.py` starts it, and sends it the orders that no
client can give, such as `faults`.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.child import python_module
from fencepost.testing.faults import Faults, Order, OrderRefused
from fencepost.testing.process import ORDER_TIMEOUT_S, STOP_TIMEOUT_S, BrokerFailed, BrokerProcess


class NodeInfo(NamedTuple):
    node_id: int
    host: str
    port: int
    state: str  # up, paused, stopped
    leaders: int  # Partitions of topics that it leads.
    coordinators: int  # Partitions of internal topics that it leads.


class Nodes:
    """Every order returns when it is carried out. Raises OrderRefused, with the reason."""

    def __init__(self, order: Order) -> None:
        self._order = order

    def describe(self) -> list[NodeInfo]:
        """All nodes, also those that are not up."""
        return self._give("describe")

    def stop(self, node_id: int) -> None:
        """Stop a node cleanly: others lead its partitions, and its port is closed."""
        self._give("stop", node_id=node_id)

    def start(self, node_id: int) -> None:
        """Start a node that was stopped, on the same port. It leads nothing until it is given something to lead."""
        self._give("start", node_id=node_id)

    def pause(self, node_id: int) -> None:
        """Let a node do nothing, as a process that is suspended; others lead its partitions, and it does not know."""
        self._give("pause", node_id=node_id)

    def resume(self, node_id: int) -> None:
        """Let a paused node go on. It answers what clients have sent meanwhile."""
        self._give("resume", node_id=node_id)

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Have a node lead a partition."""
        self._give("move-leader", topic=topic, partition=partition, node_id=node_id)

    def move_coordinator(self, transactional_id: str, node_id: int) -> None:
        """Have a node coordinate a transactional id, and all others of its partition of `__transaction_state`."""
        self._give("move-coordinator", transactional_id=transactional_id, node_id=node_id)

    def unplug(self) -> None:
        """Cut the connections between the nodes, until `plug`. Clients still reach each of them."""
        self._order("unplug_nodes")

    def plug(self) -> None:
        """Let the nodes connect to one another again."""
        self._order("plug_nodes")

    def _give(self, order: str, **given: Any) -> list[NodeInfo]:
        result = self._order("order_nodes", node_order={"order": order, **given})
        if result["refusal"] is not None:
            raise OrderRefused(result["refusal"])
        return [NodeInfo(*node) for node in result["nodes"]]


if TYPE_CHECKING:
    from fencepost.client.admin.answers import DescribedTxn
    from fencepost.client.client import KafkaClient
    from fencepost.testing.contents import CommittedRecord

START_TIMEOUT_S = 30.0
_WARNING = re.compile(r"^\S+Z (?:WARNING|ERROR)\s+(.*)$", re.MULTILINE)
_TXN = re.compile(r"^\S+Z TXN .*$", re.MULTILINE)


class Broker:
    """A broker that is started on entry and stopped on exit, or with `start` and `stop`."""

    def __init__(
        self,
        *,
        data: str | os.PathLike[str] | None = None,
        settings: Mapping[str, object] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        brokers: int = 1,
        topics: Mapping[str, int] | None = None,
        log_txns: bool = False,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        """`topics` are created at the start, with these numbers of partitions. `log_txns` makes `txn_log` complete.

        `brokers` is the number of nodes: they have ports in a row, and `port` is the first.
        """
        self.data = None if data is None else Path(data)
        self.settings = dict(settings or {})
        self.host = host
        self.brokers = brokers
        self.port = port  # 0 until the first start picks one; restarts keep it.
        self.listeners: dict[str, str] = {}  # HOST:PORT by the name of the listener, after the first start.
        self.topics = dict(topics or {})
        self.log_txns = log_txns
        self.start_timeout_s = start_timeout_s
        self._process = BrokerProcess()
        self.faults = Faults(self._process.order)
        self.nodes = Nodes(self._process.order)

    @property
    def bootstrap_servers(self) -> str:
        assert self.port, "the broker was never started"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return ",".join(f"{host}:{self.port + i}" for i in range(self.brokers))

    @property
    def pid(self) -> int:
        return self._process.running().pid

    @property
    def is_running(self) -> bool:
        return self._process.is_running

    @property
    def log(self) -> str:
        """Everything that the broker wrote to stderr so far, over all its restarts."""
        return self._process.log

    @property
    def warnings(self) -> list[str]:
        """The warnings and errors in the log so far, without their times and levels."""
        return [found[1] for found in _WARNING.finditer(self.log)]

    @property
    def txn_log(self) -> list[str]:
        """A line for whatever happened to a transaction so far, if the broker was made with `log_txns=True`."""
        return _TXN.findall(self.log)

    def start(self) -> None:
        """Start and wait until clients can connect. Raises BrokerFailed, with the broker's log."""
        self._process.start(self._command())
        try:
            self.listeners = self._process.await_ready(self.start_timeout_s)
            self.port = next(int(address.rpartition(":")[2]) for address in self.listeners.values())
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """SIGTERM, and wait. Raises BrokerFailed if the stop was not clean."""
        self._process.running().send_signal(signal.SIGTERM)
        exit_code = self.wait_for_exit(STOP_TIMEOUT_S)
        if exit_code != 0:
            raise BrokerFailed(f"the broker stopped with exit code {exit_code}\n{self._process.log_tail}")

    def kill(self) -> None:
        """SIGKILL, and wait until the process has ended. Does nothing if it has ended already."""
        self._process.kill()

    def restart(self) -> None:
        """Start again on the same folder and the same port; a running broker is stopped first.

        Raises OrderRefused for a broker in memory, which has lost its records by then. `start` starts it, empty.
        """
        if self.data is None:
            raise OrderRefused(
                "a broker in memory (data=None) does not keep its topics, records and transactions over a restart"
                "\n\nhint: keep them in a folder: Broker(data=tmp_path) or fencepost_broker_factory(data=tmp_path). "
                "For an empty broker on the same port, call stop() or kill(), then start()"
            )
        if self.is_running:
            self.stop()
        self.start()

    def wait_for_exit(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait until the broker ends by itself, as at `fencepost.crash.at`; return its exit code.

        It is -9 if the process was killed. Returns at once if the broker has ended already.
        """
        return self._process.wait(timeout_s)

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None) -> None:
        """Create a topic; `configs` are its settings, with Kafka's names. Raises OrderRefused, with the reason."""
        from fencepost.testing.contents import create_topic

        with self._client() as client:
            create_topic(client, name, partitions, configs or {})

    def read_committed(self, topic: str) -> list[CommittedRecord]:
        """What a read_committed reader gets now: the committed records up to the last stable offset.

        They are in the order of their offsets within each partition. Nothing is waited for.
        """
        from fencepost.testing.contents import read_committed

        with self._client() as client:
            return list(read_committed(client, topic))

    def transactions(self) -> list[DescribedTxn]:
        """Every transactional id with its state, producer id and epoch, timeout, start and partitions, by name."""
        from fencepost.testing.contents import transactions

        with self._client() as client:
            return transactions(client)

    def _client(self) -> KafkaClient:
        from fencepost.client.client import KafkaClient

        return KafkaClient({"bootstrap.servers": self.bootstrap_servers})

    def advance_clock(self, ms: int) -> None:
        """Move the broker's clock forward; everything that is due by then is done when this returns."""
        self._process.order("advance_clock", ms=ms)

    def time_out(self, transactional_id: str) -> None:
        """Let the open transaction time out now: it is aborted, and its producer is fenced."""
        self._process.order("time_out", transactional_id=transactional_id)

    def fence(self, transactional_id: str) -> None:
        """Fence the producer of this id, as a second one with the same id would; its open transaction is aborted."""
        deadline = time.monotonic() + ORDER_TIMEOUT_S
        while (error := self._process.order("fence", transactional_id=transactional_id)) != "NONE":
            if error != "CONCURRENT_TRANSACTIONS" or time.monotonic() > deadline:
                raise BrokerFailed(f"the producer of {transactional_id!r} could not be fenced: {error}")
            time.sleep(0.02)

    def crash_at(self, point: str, times: int = 1) -> None:
        """Let the broker kill itself when it reaches this point, counted from now, for the Nth time (`times`).

        `wait_for_exit` waits for that, and `restart` starts a broker that does not crash.
        """
        self._process.order("crash_at", point=point, times=times)

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._process.child is None:
                return
            ended_by_itself = self._process.child.poll()
            if error is not None:
                # The error of the block matters more than how the broker ends.
                self.kill()
            elif ended_by_itself is not None:
                self._process.let_go()
                raise BrokerFailed(
                    f"the broker ended by itself with exit code {ended_by_itself}\n{self._process.log_tail}"
                )
            else:
                self.stop()
        finally:
            self.kill()

    def _command(self) -> list[str]:
        place = ["--memory"] if self.data is None else ["--data", str(self.data)]
        host = f"[{self.host}]" if ":" in self.host else self.host
        command = python_module("fencepost", "broker", *place)
        if "listeners" not in self.settings:
            command += ["--listen", f"{host}:{self.port}"]
        if self.brokers > 1:
            command += ["--brokers", str(self.brokers)]
        for topic, partitions in self.topics.items():
            command += ["--topic", f"{topic}:{partitions}"]
        if self.log_txns:
            command += ["--log", "txn"]
        settings = dict(self.settings)
        if "listeners" in settings and self.listeners:
            settings["listeners"] = ",".join(f"{name}://{address}" for name, address in self.listeners.items())
        for name, value in settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            command += ["--set", f"{name}={text}"]
        return [*command, "--control-on-stdin"]
