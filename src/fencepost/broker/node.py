"""One broker: request frames in, reply frames out, without a socket or a clock.

`Node.handle` takes one whole frame from a connection and calls the handler of its API (`api/`). The connection gets
exactly one answer: at once, or later if the handler has to wait (for a long poll, a rebalance, a sync to disk). The
shell passes on a connection's next frame only after that answer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Protocol

from fencepost.broker.api import APIS
from fencepost.broker.coordinator.runtime import NotCoordinator
from fencepost.broker.fetches import FetchSessions
from fencepost.broker.slices import Slices
from fencepost.machines.acl.acls import CLUSTER_NAME, Denial, Operation, ResourceType
from fencepost.machines.acl.authorizer import SUPPORTED_OPERATIONS, bits
from fencepost.machines.log.interface import StorageFailed
from fencepost.protocol import errors, messages
from fencepost.protocol.batch import Part
from fencepost.protocol.schema import Malformed, Message, read_uvarint_rest, skip_tags

if TYPE_CHECKING:
    from fencepost.broker.cluster import BrokerAddress, Cluster
    from fencepost.machines.auth.login import Login

_HEADER = struct.Struct(">hhih")
_FRAME_V0 = struct.Struct(">ii")
_FRAME_V1 = struct.Struct(">iib")
API_VERSIONS = 18
# handle, answer_from_bytes, the class of requests, first and last version, the first flexible one
Entry = tuple[Any, Any, Any, int, int, int]
# A request without its length field. A large request is a memoryview of its own memory, which the broker may change.
Frame = bytes | memoryview
# Produce, JoinGroup and SyncGroup carry data of the client; the others only names and numbers.
# Differs: Kafka accepts any request up to `socket.request.max.bytes`. Fencepost accepts 16 MiB, except for Produce,
# JoinGroup and SyncGroup: all clients share one thread, and decoding millions of names would delay the others.
BULKY = frozenset({0, 11, 14})
PRODUCE = 0
MAX_NAMES_REQUEST_BYTES = 1 << 24
ANONYMOUS = "User:ANONYMOUS"  # The principal of a client that did not log in.


class Connection(Protocol):
    """The connection of one client, as the shell provides it."""

    host: str
    principal: str  # Who the client is, such as `User:alice`.
    listener_name: str
    login: Login | None  # None: the listener asks for no login.
    sends_in_place: bool  # It hands its answers to the kernel unread (`Log.read_in_place`).

    def enter(self, principal: str) -> None:
        """The client has proved who it is."""
        ...

    def reply(self, parts: list[Part]) -> None:
        """Send the answer to the last request; an empty list if that request expects none."""
        ...

    def close(self, reason: str) -> None: ...

    def on_close(self, action: Callable[[], None]) -> None:
        """Call `action` if the connection ends before the answer to the request being handled."""
        ...


class Context:
    """One request on its way through the broker."""

    __slots__ = (
        "api_key",
        "client_id",
        "cluster",
        "connection",
        "correlation_id",
        "is_flexible",
        "node",
        "now_ms",
        "version",
    )

    node: Node
    cluster: Cluster
    connection: Connection
    now_ms: int
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    is_flexible: bool

    def reply(self, response: Message | bytes | list[Part]) -> None:
        """Answer, now or later. Bytes are a response that its handler encoded itself."""
        if type(response) is bytes:
            parts: list[Part] = [response]
        elif type(response) is list:
            parts = response
        else:
            out = bytearray()
            response.encode_into(out, self.version)  # type: ignore[union-attr]
            parts = [bytes(out)]
        size = sum(map(len, parts))
        # Kafka: ApiVersions always answers with the old header, because the client does not know the versions yet.
        if self.is_flexible and self.api_key != API_VERSIONS:
            head = _FRAME_V1.pack(size + 5, self.correlation_id, 0)
        else:
            head = _FRAME_V0.pack(size + 4, self.correlation_id)
        self.connection.reply([head, *parts])

    def address_of(self, broker: BrokerAddress) -> BrokerAddress:
        """The address of a broker that this client can use: the one of the listener that it came in on."""
        addresses = self.cluster.addresses.get(self.connection.listener_name)
        return broker if addresses is None else addresses.get(broker.node_id, broker)

    def reply_nothing(self) -> None:
        self.connection.reply([])

    def close_connection(self, reason: str) -> None:
        self.connection.close(reason)

    # --- permissions --------------------------------------------------------------------------------------

    def may(
        self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME, *, is_filter: bool = False
    ) -> bool:
        """Whether the ACLs allow this to the client. Without an authorizer everything is allowed.

        A denial is reported, unless the question is one of a list (`is_filter`) and the client did not ask for `name`.
        """
        authorizer = self.cluster.authorizer
        if authorizer is None:
            return True
        who, host = self.connection.principal, self.connection.host
        if authorizer.allows(who, host, operation, resource_type, name):
            return True
        if not is_filter:
            self.cluster.on_denied(Denial(who, host, operation, resource_type, name, self.api_key))
        return False

    def may_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the ACLs allow this to the client on any resource of the type."""
        authorizer = self.cluster.authorizer
        return authorizer is None or authorizer.allows_any(
            self.connection.principal, self.connection.host, operation, resource_type
        )

    def allowed_operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """What the client may do, as the bits of Kafka's `authorized_operations`."""
        authorizer = self.cluster.authorizer
        if authorizer is None:
            return bits(SUPPORTED_OPERATIONS[resource_type])
        return authorizer.allowed_operations(self.connection.principal, self.connection.host, resource_type, name)


class Node:
    def __init__(self, node_id: int, cluster: Cluster) -> None:
        self.node_id = node_id
        self.cluster = cluster
        self.fetch_sessions = FetchSessions(cluster.config["max.incremental.fetch.session.cache.slots"])
        self._handlers: dict[int, Entry] = {}
        self._slices = Slices(cluster.timers, self._failed)

    def handle(self, frame: Frame, connection: Connection, now_ms: int) -> None:
        """Answer one request. Raises Malformed if it cannot be decoded; the connection must be closed then.

        The record batches of a large Produce request are stamped in place and written from there.
        """
        try:
            api_key, version, correlation_id, client_id_size = _HEADER.unpack_from(frame)
        except struct.error:
            raise Malformed(f"a request of {len(frame)} bytes has no room for its header") from None
        if len(frame) > MAX_NAMES_REQUEST_BYTES and api_key not in BULKY:
            raise Malformed(
                f"API key {api_key} needs no more than {MAX_NAMES_REQUEST_BYTES} bytes, a request has {len(frame)}"
            )
        if type(frame) is memoryview and api_key != PRODUCE:
            frame = bytes(frame)
        entry = self._handlers.get(api_key) or self._load(api_key)
        handle, answer_from_bytes, request_class, first, last, flexible_from = entry
        pos = 10 + client_id_size if client_id_size > 0 else 10
        if (
            answer_from_bytes is not None
            and first <= version <= last
            and type(frame) is bytes
            and frame[10:pos].isascii()
        ):
            body = answer_from_bytes(self.cluster, frame, pos, version, now_ms)
            if body is not None:
                if version >= flexible_from:
                    head = _FRAME_V1.pack(len(body) + 5, correlation_id, 0)
                else:
                    head = _FRAME_V0.pack(len(body) + 4, correlation_id)
                connection.reply([head, body])
                return
        if pos > len(frame):
            raise Malformed(f"the client id claims {client_id_size} bytes, but {len(frame) - 10} are left")
        ctx = Context()
        ctx.node = self
        ctx.cluster = self.cluster
        ctx.connection = connection
        ctx.now_ms = now_ms
        ctx.api_key = api_key
        ctx.version = version
        ctx.correlation_id = correlation_id
        try:
            ctx.client_id = str(frame[10:pos], "utf-8") if client_id_size >= 0 else None
        except UnicodeDecodeError as e:
            raise Malformed(f"the client id is not UTF-8: {e}") from None
        ctx.is_flexible = version >= flexible_from
        if version < first or version > last:
            self._refuse_version(ctx)
            return
        if ctx.is_flexible:
            try:
                count = frame[pos]
                pos += 1
                if count:
                    if count >= 128:
                        count, pos = read_uvarint_rest(frame, pos, count)
                    pos = skip_tags(frame, pos, count)
            except IndexError:
                raise Malformed("the request header ends too early") from None
        req, _ = request_class.decode(frame, pos, version)
        try:
            response = handle(ctx, req)
        except Exception as e:
            self._failed(ctx, e)
            return
        if type(response) is GeneratorType:
            self._slices.begin(ctx, response)
        elif response is not None:
            ctx.reply(response)

    def _failed(self, ctx: Context, error: Exception) -> None:
        """Answer what every handler may raise; raise anything else again."""
        if isinstance(error, StorageFailed):
            self._storage_failed(ctx, error)
        elif isinstance(error, NotCoordinator):
            # Handlers whose responses have an error for each item catch it themselves.
            ctx.reply(self._response_class(ctx)(error_code=errors.NOT_COORDINATOR))
        else:
            raise error

    def _load(self, api_key: int) -> Entry:
        api = APIS.get(api_key)
        if api is None:
            raise Malformed(f"API key {api_key} is unknown")
        handle, answer_from_bytes, request_class = api.load()
        if self.cluster.authorizer is not None:
            answer_from_bytes = None  # It checks no permissions.
        entry = (handle, answer_from_bytes, request_class, api.first, api.last, request_class.definition.flexible_from)
        self._handlers[api_key] = entry
        return entry

    def _response_class(self, ctx: Context) -> Any:
        return getattr(messages, f"{APIS[ctx.api_key].name}Response")

    def _storage_failed(self, ctx: Context, error: StorageFailed) -> None:
        """Answer when the disk refused a write that the handler needed, such as the creation of an internal topic."""
        response_class = self._response_class(ctx)
        fields = response_class.definition.fields
        if any(f.name == "error_code" and ctx.version in f.versions for f in fields):
            ctx.reply(response_class(error_code=errors.COORDINATOR_NOT_AVAILABLE))
        else:
            ctx.close_connection(f"{APIS[ctx.api_key].name} could not be served: {error}")

    def _refuse_version(self, ctx: Context) -> None:
        """Kafka: only ApiVersions answers an unknown version, in v0. Any other API closes the connection."""
        api = APIS[ctx.api_key]
        if ctx.api_key != API_VERSIONS:
            raise Malformed(f"{api.name} v{ctx.version} is not supported, only v{api.first} to v{api.last}")
        from fencepost.broker.api.k18_api_versions import unsupported_version

        ctx.version = 0
        ctx.is_flexible = False
        ctx.reply(unsupported_version())
