"""Finds the brokers, topics, leaders and coordinators of a Kafka cluster, and finds them again when they move.

Blocking and thread-safe. Every call has a deadline; retriable errors are retried until then, with a pause that grows
from 20 ms to 1 s.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from fencepost.client.connection import BrokerConnection, Disconnected
from fencepost.client.failures import BrokerError, ClientError, DeadlinePassed, NoToken, Refused, Unreachable
from fencepost.client.oauthbearer import TokenSource, token_source
from fencepost.client.session import TRANSACTION_VERSION
from fencepost.client.settings import ClientSettings, parse_settings
from fencepost.counting import counted
from fencepost.protocol import errors
from fencepost.protocol.messages import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from fencepost.protocol.schema import Message
from fencepost.protocol.transaction_version import TV0, TV2, TransactionVersion

GROUP, TRANSACTION = 0, 1
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0
FAILED_FOR_S = 10.0
DEFAULT_DEADLINE_S = 60.0
COORDINATOR_MOVED = frozenset(
    {errors.NOT_COORDINATOR, errors.COORDINATOR_NOT_AVAILABLE, errors.COORDINATOR_LOAD_IN_PROGRESS}
)
T = TypeVar("T")


class TopicInfo(NamedTuple):
    name: str
    topic_id: bytes
    leaders: tuple[int, ...]  # By partition; -1: no leader.


class KafkaClient:
    def __init__(self, settings: Mapping[str, object], first_patience_s: float = math.inf) -> None:
        """A client that no broker has answered yet retries ports where nothing listens for `first_patience_s`.

        It is not limited by default, because the broker may be about to start. With a limit, a broker that was never
        reached at its advertised address is not retried either: the cluster says that it runs, so the address is wrong.
        """
        self._given = settings
        self.settings: ClientSettings = parse_settings(settings)
        login = self.settings.oauth
        self.tokens: TokenSource | None = None if login is None else token_source(login)
        self._first_patience_s = first_patience_s
        self._reached: set[int] = set()
        # Advertised addresses that failed, until when they are not tried again, and why.
        self._failed: dict[tuple[str, int], tuple[float, Unreachable]] = {}
        self._lock = threading.RLock()
        self._addresses: dict[int, tuple[str, int]] = {}
        self._connections: dict[int, BrokerConnection] = {}
        self._bootstrap: BrokerConnection | None = None
        self._topics: dict[str, TopicInfo] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self.cluster_id = ""

    def __enter__(self) -> KafkaClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def another(self) -> KafkaClient:
        """A client for the same cluster, with connections of its own."""
        return KafkaClient(self._given, self._first_patience_s)

    def close(self) -> None:
        with self._lock:
            for connection in self._connections.values():
                connection.close()
            if self._bootstrap is not None:
                self._bootstrap.close()
            self._connections.clear()
            self._bootstrap = None

    # --- connections --------------------------------------------------------------------------------------

    def any_broker(self) -> BrokerConnection:
        """A connection to the first broker that answers; raises Unreachable with the reasons of all others."""
        with self._lock:
            if self._bootstrap is not None:
                return self._bootstrap
            problems: list[Unreachable] = []
            for host, port in [*self.settings.bootstrap, *self._addresses.values()]:
                try:
                    self._bootstrap = BrokerConnection(host, port, self.settings, self.tokens)
                    return self._bootstrap
                except NoToken as e:
                    e.patience_s = self._first_patience_s if not self._addresses else e.patience_s
                    raise  # Every broker wants the same token.
                except Unreachable as e:
                    problems.append(e)
            is_new = not self._addresses
        # The hints of several brokers are mostly the same, so each is printed once, at the end.
        said = [str(problem).partition("\n\n") for problem in problems]
        hints = dict.fromkeys(hint for _, _, hint in said if hint)
        failure = Unreachable(
            "\n\n".join(["no broker can be reached: " + "; ".join(what for what, _, _ in said), *hints])
        )
        if is_new and all(isinstance(problem, Refused) for problem in problems):
            failure.patience_s = self._first_patience_s
        raise failure

    def broker(self, node_id: int) -> BrokerConnection:
        with self._lock:
            connection = self._connections.get(node_id)
            if connection is None:
                if node_id not in self._addresses:
                    self.refresh()
                if node_id not in self._addresses:
                    raise Unreachable(f"broker {node_id} is not in the cluster's metadata")
                connection = self._connections[node_id] = self._connect(node_id)
                self._reached.add(node_id)
            return connection

    @property
    def has_reached_a_broker(self) -> bool:
        """Has any broker answered at the address that the cluster gives for it?"""
        return bool(self._reached)

    def _connect(self, node_id: int) -> BrokerConnection:
        address = self._addresses[node_id]
        until, failure = self._failed.get(address, (-math.inf, None))
        if failure is not None and time.monotonic() < until:
            raise failure
        try:
            return BrokerConnection(*address, self.settings, self.tokens)
        except NoToken:
            raise
        except Unreachable as e:
            failure = Unreachable(_advertised_failure(node_id, e))
            if self._first_patience_s < math.inf and node_id not in self._reached:
                failure.patience_s = 0
                # A question that follows must not wait for the same timeout.
                self._failed[address] = (time.monotonic() + FAILED_FOR_S, failure)
            raise failure from None

    def drop(self, connection: BrokerConnection) -> None:
        """Forget a connection that failed."""
        connection.close()
        with self._lock:
            if self._bootstrap is connection:
                self._bootstrap = None
            self._connections = {n: c for n, c in self._connections.items() if c is not connection}

    def send(self, connection: BrokerConnection, request: Message, at_most: int | None = None) -> Any:
        try:
            return connection.request(request, at_most)
        except Disconnected:
            self.drop(connection)
            raise

    @property
    def transaction_version(self) -> TransactionVersion:
        """The finalized `transaction.version` of the cluster, at most the highest that this client knows."""
        return TransactionVersion(min(self.any_broker().session.features.get(TRANSACTION_VERSION, TV0), TV2))

    def refresh_features(self) -> None:
        """Ask a broker for the finalized features again: a connection learns them only when it begins."""
        connection = self.any_broker()
        response = self.send(connection, ApiVersionsRequest("fencepost", "1"))
        if response.error_code:
            raise BrokerError(response.error_code, "the features of the cluster")
        connection.session.learn(response)

    # --- metadata -----------------------------------------------------------------------------------------

    def refresh(self, topics: Iterable[str] | None = ()) -> dict[str, TopicInfo]:
        """Ask for the brokers and for topics (None: all). This never creates a topic."""
        wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=t) for t in topics]
        response = self.send(self.any_broker(), MetadataRequest(wanted, allow_auto_topic_creation=False))
        found = {}
        with self._lock:
            self.cluster_id = response.cluster_id or ""
            self._addresses = {b.node_id: (b.host, b.port) for b in response.brokers}
            for t in response.topics:
                if t.error_code:
                    self._topics.pop(t.name, None)
                    if t.error_code not in (errors.UNKNOWN_TOPIC_OR_PARTITION, errors.LEADER_NOT_AVAILABLE):
                        raise BrokerError(t.error_code, f"topic {t.name}")
                    continue
                leaders = {p.partition_index: p.leader_id for p in t.partitions}
                info = TopicInfo(t.name, t.topic_id, tuple(leaders.get(i, -1) for i in range(len(leaders))))
                self._topics[t.name] = found[t.name] = info
        return found

    def topic(self, name: str, fresh: bool = False) -> TopicInfo:
        with self._lock:
            info = self._topics.get(name)
        if info is None or fresh:
            found = self.refresh([name])
            if name not in found:
                raise BrokerError(errors.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}", "it does not exist")
            info = found[name]
        return info

    def leader(self, topic: str, partition: int, fresh: bool = False) -> BrokerConnection:
        info = self.topic(topic, fresh)
        count = len(info.leaders)
        if not 0 <= partition < count:
            there = f"the topic has {counted(count, 'partition')}"
            raise BrokerError(errors.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition}", there)
        if info.leaders[partition] < 0:
            raise BrokerError(errors.LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
        return self.broker(info.leaders[partition])

    def brokers(self) -> dict[int, tuple[str, int]]:
        self.refresh()
        return dict(self._addresses)

    # --- coordinators -------------------------------------------------------------------------------------

    def coordinator(self, key: str, key_type: int) -> BrokerConnection:
        with self._lock:
            node_id = self._coordinators.get((key_type, key))
        if node_id is None:
            node_id = self._find_coordinator(key, key_type)
            with self._lock:
                self._coordinators[key_type, key] = node_id
        return self.broker(node_id)

    def _find_coordinator(self, key: str, key_type: int) -> int:
        response = self.send(
            self.any_broker(), FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
        )
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            raise BrokerError(found.error_code, f"coordinator of {key}", found.error_message)
        with self._lock:
            self._addresses[found.node_id] = (found.host, found.port)
        return int(found.node_id)

    def forget_coordinator(self, key: str, key_type: int) -> None:
        with self._lock:
            self._coordinators.pop((key_type, key), None)

    def ask_coordinator(
        self,
        key: str,
        key_type: int,
        request: Message,
        error_of: Callable[[Any], int],
        *,
        at_most: int | None = None,
        retry_also: frozenset[int] = frozenset(),
        deadline_s: float = DEFAULT_DEADLINE_S,
        on_lost: Callable[[], None] = lambda: None,
    ) -> Any:
        """Send to the coordinator until it answers, and neither has moved nor asks for a retry.

        on_lost: called if an answer is lost. The coordinator may have served the request.
        """

        def attempt() -> Any:
            try:
                response = self.send(self.coordinator(key, key_type), request, at_most)
            except Unreachable:
                on_lost()
                self.forget_coordinator(key, key_type)
                raise
            code = error_of(response)
            if code in COORDINATOR_MOVED:
                self.forget_coordinator(key, key_type)
            if code in COORDINATOR_MOVED or code in retry_also:
                raise BrokerError(code, f"{type(request).__name__} for {key}")
            return response

        return retry(attempt, deadline_s, retry_also | COORDINATOR_MOVED)


def _advertised_failure(node_id: int, error: Unreachable) -> str:
    what, _, hint = str(error).partition("\n\n")
    hint = hint or (
        f"hint: the cluster gave this address for broker {node_id}: is it running, and does its advertised.listeners "
        "name an address that this machine can reach?"
    )
    return f"broker {node_id} cannot be reached at its advertised address: {what}\n\n{hint}"


def retry(
    attempt: Callable[[], T],
    deadline_s: float,
    also: frozenset[int] = frozenset(),
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Call `attempt` until it succeeds, raises an error that is not retriable, or the deadline has passed.

    An error may have a shorter patience than the deadline.
    """
    began = clock()
    pause_s = FIRST_PAUSE_S
    while True:
        patience_s = deadline_s
        try:
            return attempt()
        except BrokerError as e:
            if not e.is_retriable and e.code not in also:
                raise
            problem: ClientError = e
        except Unreachable as e:
            if e.patience_s <= 0:
                raise
            problem = e
            patience_s = min(deadline_s, e.patience_s)
        took_s = clock() - began
        if took_s + pause_s > patience_s:
            raise DeadlinePassed(f"given up after {took_s:.0f} s; the last answer was: {problem}") from problem
        sleep(pause_s)
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
