"""A broker without sockets, files or a real clock: the pure Node over memory storage.

    broker = PureBroker({"fencepost.endtxn.reply": "prepare"})
    reply = broker.call(EndTxnRequest("t1", 1, 0, True), version=5)
    broker.advance(60_000)      # Time passes, and timers run at their deadlines.
    broker.restart()            # kill -9: only appended data is left.

Requests go through real frames, so the codecs and the hand-written encoders are part of every test.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from fencepost.broker.cluster import BrokerAddress, Cluster
from fencepost.broker.config import parse
from fencepost.broker.coordinator.txn_trace import Trace
from fencepost.broker.node import ANONYMOUS, Node
from fencepost.broker.slices import PAUSE_MS
from fencepost.machines.auth.login import Login
from fencepost.machines.log.memory import MemoryStorage
from fencepost.machines.txn.records import encode_key, encode_value
from fencepost.machines.txn.states import Txn
from fencepost.protocol.batch import Part, encode_batch
from fencepost.protocol.schema import Message
from tests.memory_storage import after_kill
from tests.wire.raw_client import CLIENT_ID, decode_reply, encode_frame

START_MS = 1_700_000_000_000


class PureConnection:
    """The client's end of a connection: the broker's replies, and why it closed the connection."""

    host = "127.0.0.1"
    listener_name = ""
    sends_in_place = False
    login: Login | None = None

    def __init__(self, principal: str = ANONYMOUS) -> None:
        self.principal = principal
        self.frames: list[bytes] = []
        self.closed: str | None = None
        self.is_answered = False
        self._closer: Callable[[], None] | None = None

    def reply(self, parts: list[Part]) -> None:
        self.is_answered = True
        self._closer = None
        if parts:
            frame = b"".join(parts)
            assert int.from_bytes(frame[:4], "big") == len(frame) - 4, "the frame's length is wrong"
            self.frames.append(frame[4:])

    def close(self, reason: str) -> None:
        self.closed = reason

    def enter(self, principal: str) -> None:
        self.principal = principal

    def on_close(self, action: Callable[[], None]) -> None:
        self._closer = action

    def hang_up(self) -> None:
        if self._closer is not None:
            self._closer()


class Pending:
    """A request that was sent; `response` is None until the broker answers."""

    def __init__(self, request: Message, version: int, connection: PureConnection) -> None:
        self._request = request
        self._version = version
        self.connection = connection

    @property
    def response(self) -> Any:
        frames = self.connection.frames
        return decode_reply(self._request, self._version, frames[0]) if frames else None


class PureBroker:
    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        storage: MemoryStorage | None = None,
        crash_at: Callable[[str], None] | None = None,
        now_ms: int = START_MS,
        seed: int = 1,
        trace: Trace | None = None,
    ) -> None:
        self.settings = {"transaction.state.log.num.partitions": "5", "offsets.topic.num.partitions": "5"} | dict(
            settings or {}
        )
        self.storage = MemoryStorage() if storage is None else storage
        self.now_ms = now_ms
        self.principal = ANONYMOUS  # Who the client is.
        self.notices: list[str] = []
        self._crash_at = crash_at
        self._seed = seed
        self._trace = trace
        self._start()

    def _start(self) -> None:
        self.cluster = Cluster(
            self.storage,
            parse(self.settings),
            random.Random(self._seed),
            self.notices.append,
            self._crash_at,
            self._trace,
        )
        self.cluster.brokers = [BrokerAddress(1, "127.0.0.1", 9092)]
        self.node = Node(1, self.cluster)
        self._recover()

    def _recover(self) -> None:
        self.cluster.start(self.now_ms)

    def restart(self, storage: MemoryStorage | None = None) -> None:
        """kill -9 and a new process. It finds all that was appended, or `storage` if that is given."""
        self.storage = after_kill(self.storage) if storage is None else storage
        self._start()

    def send(self, request: Message, version: int, client_id: str | None = CLIENT_ID) -> Pending:
        connection = PureConnection(self.principal)
        self.node.handle(encode_frame(request, version, 1, client_id), connection, self.now_ms)
        return Pending(request, version, connection)

    def call(self, request: Message, version: int, client_id: str | None = CLIENT_ID) -> Any:
        """Send a request that must be answered at once, or after its slices (`broker/slices.py`)."""
        pending = self.send(request, version, client_id)
        while pending.response is None and self.cluster.timers.next_deadline_ms() == self.now_ms + PAUSE_MS:
            self.advance(PAUSE_MS)
        assert pending.response is not None, f"{type(request).__name__} v{version} was not answered"
        return pending.response

    def advance(self, ms: int) -> None:
        """Let time pass. Every timer runs at its own deadline, as with a real clock."""
        end_ms = self.now_ms + ms
        timers = self.cluster.timers
        while (due_ms := timers.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            timers.advance(self.now_ms)
        self.now_ms = end_ms

    def sleep(self, ms: int) -> None:
        """Let time pass as for a process that was suspended: the timers that are due run afterwards, late."""
        self.now_ms += ms
        self.cluster.timers.advance(self.now_ms)

    # --- for transcripts ------------------------------------------------------------------------------------

    is_independent = False
    is_apache = False

    def write_state(self, txn: Txn) -> None:
        """Append a record to `__transaction_state` directly. The coordinator reads it after a restart."""
        shard = self.cluster.txns.shard_of(txn.transactional_id, self.now_ms)
        value = encode_value(txn, self.cluster.transaction_version)
        shard.log.partition.append_internal(encode_batch([(encode_key(txn.transactional_id), value)], self.now_ms))
