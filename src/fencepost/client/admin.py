"""What operators ask of a cluster, and the two orders that end a transaction from outside.

Each question goes to every broker that must be asked, in one request a broker: transactions to their coordinators,
offsets and producers to the leaders of partitions. What a broker could not answer comes back in `problems` beside
what the others said: a cluster with one sick partition must still be possible to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from fencepost.client.client import COORDINATOR_MOVED, TRANSACTION, KafkaClient, retry
from fencepost.client.failures import BrokerError, ClientError, Unreachable
from fencepost.protocol import errors
from fencepost.protocol.batch import BatchHeader, Buffer
from fencepost.protocol.messages import (
    DescribeConfigsRequest,
    DescribeProducersRequest,
    DescribeRpcsRequest,
    DescribeTransactionsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.records import iter_batches
from fencepost.protocol.schema import Message

# Somebody sits at a terminal and waits. A partition without an answer is told as such, so it gets less.
DEADLINE_S = 10.0
LEADER_DEADLINE_S = 3.0
FENCE_DEADLINE_S = 30.0
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST, EARLIEST = -1, -2
BROKER_RESOURCE = 4
# Requests and replies of a few hundred kilobytes, however many ids or partitions there are.
IDS_PER_REQUEST = 1000
PARTITIONS_PER_REQUEST = 2000
FETCH_BYTES = 4 << 20
FETCH_WAIT_MS = 500
EMPTY_FETCHES = 5
MOST_IDS_WITH_RPCS = 100
NAMES_IN_FETCH = 12  # Later versions name topics by their id.
FALLBACK_TIMEOUT_MS = 1000

K = TypeVar("K")
V = TypeVar("V")


class Where(NamedTuple):
    """A partition. Its text is Kafka's own: `orders-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ListedTxn(NamedTuple):
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class DescribedTxn(NamedTuple):
    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int  # -1: nothing was begun since the producer registered.
    partitions: tuple[Where, ...]


class Producer(NamedTuple):
    """A producer, as the leader of one partition remembers it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    txn_start_offset: int  # -1: no open transaction.


class Rpc(NamedTuple):
    """A request of a transactional producer, as a Fencepost broker remembers it."""

    at_ms: int
    name: str
    version: int
    client_id: str | None
    host: str
    port: int
    producer_id: int
    producer_epoch: int
    about: str
    error_code: int
    duration_us: int  # -1: it is not answered yet.


@dataclass(slots=True)
class Answers(Generic[K, V]):
    found: dict[K, V] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


# --- transactions -----------------------------------------------------------------------------------------


def list_transactions(
    client: KafkaClient, states: Collection[str] = (), producer_ids: Collection[int] = ()
) -> Answers[str, ListedTxn]:
    """The transactional ids of all coordinators."""
    answers: Answers[str, ListedTxn] = Answers()
    request = ListTransactionsRequest(sorted(states), sorted(producer_ids))
    for node_id in sorted(client.brokers()):
        try:
            response = _ask(client, node_id, request)
        except ClientError as e:
            answers.problems.append(f"broker {node_id} could not list its transactions: {e}")
            continue
        for txn in response.transaction_states:
            listed = ListedTxn(txn.transactional_id, node_id, txn.producer_id, txn.transaction_state)
            answers.found[txn.transactional_id] = listed
    return answers


def _find_coordinators(client: KafkaClient, ids: Sequence[str]) -> dict[str, int]:
    """The broker that coordinates each transactional id."""
    connection = client.any_broker()
    found = {}
    if connection.session.max_version(10) >= 4:
        response = client.send(connection, FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=list(ids)))
        answers = {c.key: c for c in response.coordinators}
    else:
        answers = {id_: client.send(connection, FindCoordinatorRequest(id_, TRANSACTION)) for id_ in ids}
    for id_, answer in answers.items():
        if answer.error_code:
            raise BrokerError(answer.error_code, f"coordinator of `{id_}`", answer.error_message)
        found[id_] = int(answer.node_id)
    return found


def describe_transactions(client: KafkaClient, coordinators: Mapping[str, int]) -> Answers[str, DescribedTxn]:
    """All that is known of some ids, given where they are coordinated. An id that does not exist is left out."""
    answers: Answers[str, DescribedTxn] = Answers()
    for node_id, ids in _by_value(coordinators).items():
        for chunk in _chunks(ids, IDS_PER_REQUEST):
            _describe_on(client, node_id, chunk, answers)
    return answers


def _describe_on(client: KafkaClient, node_id: int, ids: Sequence[str], answers: Answers[str, DescribedTxn]) -> None:
    try:
        response = _ask(client, node_id, DescribeTransactionsRequest(list(ids)), _txn_loading)
    except ClientError as e:
        answers.problems.append(f"broker {node_id} could not describe transactions: {e}")
        return
    for txn in response.transaction_states:
        if txn.error_code == errors.NONE:
            answers.found[txn.transactional_id] = _described(txn, node_id)
        elif txn.error_code != errors.TRANSACTIONAL_ID_NOT_FOUND:
            answers.problems.append(str(BrokerError(txn.error_code, f"transaction `{txn.transactional_id}`")))


def _described(txn: Any, coordinator: int) -> DescribedTxn:
    return DescribedTxn(
        txn.transactional_id,
        coordinator,
        txn.transaction_state,
        txn.producer_id,
        txn.producer_epoch,
        txn.transaction_timeout_ms,
        txn.transaction_start_time_ms,
        tuple(sorted(Where(t.topic, p) for t in txn.topics for p in t.partitions)),
    )


def _txn_loading(response: Any) -> int:
    return next((t.error_code for t in response.transaction_states if t.error_code in COORDINATOR_MOVED), errors.NONE)


def describe_transaction(client: KafkaClient, transactional_id: str) -> tuple[int, DescribedTxn | None]:
    """The coordinator of an id, and what it knows of it: None if it does not know the id. Raises ClientError."""

    def attempt() -> tuple[int, DescribedTxn | None]:
        coordinator = _find_coordinators(client, [transactional_id])[transactional_id]
        response = client.send(client.broker(coordinator), DescribeTransactionsRequest([transactional_id]))
        [txn] = response.transaction_states
        if txn.error_code == errors.TRANSACTIONAL_ID_NOT_FOUND:
            return coordinator, None
        if txn.error_code:
            raise BrokerError(txn.error_code, f"transaction `{transactional_id}`")
        return coordinator, _described(txn, coordinator)

    return retry(attempt, DEADLINE_S, COORDINATOR_MOVED)


def describe_rpcs(client: KafkaClient, ids: Collection[str]) -> dict[str, tuple[Rpc, ...]] | None:
    """The last requests of some ids (at most a hundred), oldest first; None on brokers that remember none."""
    connection = client.any_broker()
    if connection.session.max_version(DescribeRpcsRequest.definition.api_key) < 0:
        return None
    response = client.send(connection, DescribeRpcsRequest(sorted(ids)[:MOST_IDS_WITH_RPCS]))
    return {
        t.transactional_id: tuple(Rpc(*(getattr(rpc, name) for name in Rpc._fields)) for rpc in t.rpcs)
        for t in response.transactions
    }


# --- partitions -------------------------------------------------------------------------------------------


def partitions_of(client: KafkaClient, topics: Iterable[str] | None = None) -> list[Where]:
    """The partitions of some topics, or of all. Raises BrokerError for a topic that does not exist."""
    wanted = None if topics is None else list(topics)
    found = client.refresh(wanted)
    for name in wanted or ():
        if name not in found:
            raise BrokerError(errors.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}", "it does not exist")
    return [Where(t.name, i) for t in sorted(found.values()) for i in range(len(t.leaders))]


def list_offsets(
    client: KafkaClient,
    partitions: Iterable[Where],
    isolation_level: int = READ_UNCOMMITTED,
    timestamp: int = LATEST,
) -> Answers[Where, int]:
    """The end of each partition: the high watermark, or the last stable offset with READ_COMMITTED."""

    def request(chunk: Mapping[str, list[int]]) -> Message:
        partition = ListOffsetsRequest.ListOffsetsPartition
        topics = [
            ListOffsetsRequest.ListOffsetsTopic(name, [partition(i, timestamp=timestamp) for i in indexes])
            for name, indexes in chunk.items()
        ]
        return ListOffsetsRequest(-1, isolation_level, topics)

    def read(response: Any) -> Iterator[tuple[Where, int, int]]:
        for topic in response.topics:
            for p in topic.partitions:
                yield Where(topic.name, p.partition_index), p.error_code, p.offset

    return _ask_leaders(client, partitions, request, read, "offsets")


def describe_producers(client: KafkaClient, partitions: Iterable[Where]) -> Answers[Where, tuple[Producer, ...]]:
    """The producers that each partition remembers, with their open transactions."""

    def request(chunk: Mapping[str, list[int]]) -> Message:
        return DescribeProducersRequest([DescribeProducersRequest.TopicRequest(n, i) for n, i in chunk.items()])

    def read(response: Any) -> Iterator[tuple[Where, int, tuple[Producer, ...]]]:
        for topic in response.topics:
            for p in topic.partitions:
                producers = tuple(
                    Producer(
                        s.producer_id,
                        s.producer_epoch,
                        s.last_sequence,
                        s.last_timestamp,
                        s.coordinator_epoch,
                        s.current_txn_start_offset,
                    )
                    for s in p.active_producers
                )
                yield Where(topic.name, p.partition_index), p.error_code, producers

    return _ask_leaders(client, partitions, request, read, "producers")


def _ask_leaders(
    client: KafkaClient,
    partitions: Iterable[Where],
    request: Callable[[Mapping[str, list[int]]], Message],
    read: Callable[[Any], Iterator[tuple[Where, int, V]]],
    what: str,
) -> Answers[Where, V]:
    """Ask the leader of every partition; ask again, until the deadline, where a leader has just moved."""
    answers: Answers[Where, V] = Answers()
    left = list(partitions)
    problems: dict[Where, str] = {}

    def attempt() -> None:
        again: list[Where] = []
        for node_id, led in _by_value(_leaders(client, left)).items():
            for chunk in _chunks(led, PARTITIONS_PER_REQUEST):
                try:
                    answered = _ask_leader(client, node_id, chunk, request, read)
                except ClientError as e:
                    problems.update((where, f"the {what} of {where} are unknown: {e}") for where in chunk)
                    again += chunk if isinstance(e, Unreachable) else ()
                    continue
                for where, code, value in answered:
                    if code == errors.NONE:
                        answers.found[where] = value
                        problems.pop(where, None)
                        continue
                    problems[where] = str(BrokerError(code, f"the {what} of {where} are unknown"))
                    again += [where] if code in errors.RETRIABLE else ()
        left[:] = again
        if again:
            raise BrokerError(errors.LEADER_NOT_AVAILABLE, f"{again[0]}")

    try:
        retry(attempt, LEADER_DEADLINE_S)
    except ClientError as e:
        for where in left:
            problems.setdefault(where, f"the {what} of {where} are unknown: {e}")
    answers.problems = [problems[where] for where in sorted(problems)]
    return answers


def _leaders(client: KafkaClient, partitions: Sequence[Where]) -> dict[Where, int]:
    """Who leads each partition now; -1: nobody, or it is gone."""
    topics = client.refresh(sorted({where.topic for where in partitions}))
    found = {}
    for where in partitions:
        leaders = topics[where.topic].leaders if where.topic in topics else ()
        found[where] = leaders[where.partition] if where.partition < len(leaders) else -1
    return found


def _ask_leader(
    client: KafkaClient,
    node_id: int,
    partitions: Sequence[Where],
    request: Callable[[Mapping[str, list[int]]], Message],
    read: Callable[[Any], Iterator[tuple[Where, int, V]]],
) -> list[tuple[Where, int, V]]:
    if node_id < 0:
        raise BrokerError(errors.LEADER_NOT_AVAILABLE, "nobody leads it now")
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return list(read(client.send(client.broker(node_id), request(by_topic))))


def read_batches(client: KafkaClient, where: Where, start: int, end: int) -> Iterator[tuple[BatchHeader, Buffer]]:
    """Every batch with offsets from `start` up to before `end`, committed or not."""
    topic = FetchRequest.FetchTopic
    partition = FetchRequest.FetchPartition
    position, empty = start, 0
    while position < end and empty < EMPTY_FETCHES:
        part = partition(where.partition, fetch_offset=position, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=READ_UNCOMMITTED,
            topics=[topic(where.topic, partitions=[part])],
        )

        def attempt(request: FetchRequest = request) -> Buffer:
            response = client.send(client.leader(*where), request, NAMES_IN_FETCH)
            found = response.responses[0].partitions[0]
            if found.error_code:
                client.topic(where.topic, fresh=True)
                raise BrokerError(found.error_code, f"reading {where}")
            return found.records or b""

        empty += 1  # The end was there when we asked for it, so nothing for several times means that it is gone.
        for header, batch in iter_batches(retry(attempt, DEADLINE_S)):
            if header.base_offset >= end:
                return
            empty = 0
            if header.last_offset >= position:
                position = header.last_offset + 1
                yield header, batch


def broker_settings(client: KafkaClient, names: Collection[str]) -> dict[str, str]:
    """Settings of one broker. Those that it does not tell, or does not have, are left out."""
    node_id = min(client.brokers())
    wanted = DescribeConfigsRequest.DescribeConfigsResource(BROKER_RESOURCE, str(node_id), list(names))
    response = client.send(client.broker(node_id), DescribeConfigsRequest([wanted]))
    return {
        c.name: c.value
        for r in response.results
        if not r.error_code
        for c in r.configs
        if c.name in names and c.value is not None
    }


# --- orders -----------------------------------------------------------------------------------------------


def fence(client: KafkaClient, transactional_id: str, timeout_ms: int) -> tuple[int, int]:
    """Take a transactional id over: abort what is open, and refuse its producer from now on.

    Returns the producer id and epoch that the cluster hands out now. Call it only for an id that exists: for another
    it would make one.
    """

    def init(timeout_ms: int) -> Any:
        return client.ask_coordinator(
            transactional_id,
            TRANSACTION,
            InitProducerIdRequest(transactional_id, timeout_ms, -1, -1),
            lambda r: int(r.error_code),
            at_most=5,
            # While the abort's markers are on their way.
            retry_also=frozenset({errors.CONCURRENT_TRANSACTIONS}),
            deadline_s=FENCE_DEADLINE_S,
        )

    response = init(timeout_ms)
    if response.error_code == errors.INVALID_TRANSACTION_TIMEOUT:
        # The limit was lowered after the producer registered. The next one brings a timeout of its own.
        response = init(FALLBACK_TIMEOUT_MS)
    if response.error_code:
        raise BrokerError(response.error_code, f"InitProducerId for `{transactional_id}`")
    return response.producer_id, response.producer_epoch


def write_abort_marker(client: KafkaClient, where: Where, producer: Producer) -> None:
    """End one producer's transaction on one partition, without asking its coordinator. Only for what hangs."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(where.topic, [where.partition])],
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )

    def attempt() -> None:
        response = client.send(client.leader(*where), WriteTxnMarkersRequest([marker]))
        code = response.markers[0].topics[0].partitions[0].error_code
        if code:
            client.topic(where.topic, fresh=True)
            raise BrokerError(code, f"the abort marker for producer {producer.producer_id} on {where}")

    retry(attempt, DEADLINE_S)


# --- asking -----------------------------------------------------------------------------------------------


def _ask(
    client: KafkaClient,
    node_id: int,
    request: Message,
    error_of: Callable[[Any], int] = lambda r: int(r.error_code),
) -> Any:
    """Ask one broker, again while it loads. Raises ClientError."""

    def attempt() -> Any:
        response = client.send(client.broker(node_id), request)
        code = error_of(response)
        if code:
            raise BrokerError(code, type(request).__name__.removesuffix("Request"))
        return response

    return retry(attempt, DEADLINE_S)


def _by_value(mapping: Mapping[K, int]) -> dict[int, list[K]]:
    grouped: dict[int, list[K]] = {}
    for key, value in mapping.items():
        grouped.setdefault(value, []).append(key)
    return grouped


def _chunks(items: Sequence[V], size: int) -> Iterator[Sequence[V]]:
    return (items[i : i + size] for i in range(0, len(items), size))
