"""Requests and replies of transactions, decoded: whose they are, what they ask for, what they answer.

Of a Produce request, the header of the first record batch is read, and no record. A large one is passed on in pieces,
and only its beginning is here; its reply names all of its partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fencepost.protocol import errors
from fencepost.protocol.apis import body_of_reply, body_of_request, knows, request_class, response_class
from fencepost.protocol.batch import HEADER, HEADER_BYTES, PRODUCER_ID_FIELD, RECORD_COUNT_FIELD
from fencepost.protocol.schema import Malformed
from fencepost.protocol.walking import named, values_in_request

PRODUCE, FETCH, METADATA, FIND_COORDINATOR = 0, 1, 3, 10
INIT, ADD_PARTITIONS, ADD_OFFSETS, END, MARKERS, COMMIT_OFFSETS = 22, 24, 25, 26, 27, 28
DECODED = frozenset({PRODUCE, FIND_COORDINATOR, INIT, ADD_PARTITIONS, ADD_OFFSETS, END, MARKERS, COMMIT_OFFSETS})
TRANSACTION_KEY = 1  # Of FindCoordinator.
ISOLATION = ("read_uncommitted", "read_committed")
METADATA_WITH_IDS = 10
NO_PRODUCER = -1
TopicNames = Callable[[bytes], str]


@dataclass(frozen=True, slots=True)
class Decoded:
    """`about` has what is particular to the API, as JSON values; `error` the first error of a reply."""

    transactional_id: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    about: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class WireEvent:
    """A request, a reply, or a request that gets no reply because its connection ended."""

    at_us: int  # Since 1970.
    kind: str  # request, reply or unanswered
    connection: int
    client: str  # HOST:PORT
    client_id: str
    broker: str  # HOST:PORT
    node_id: int | None
    api: str
    version: int
    correlation_id: int
    transactional_id: str | None
    producer_id: int | None
    producer_epoch: int | None
    about: dict[str, Any]
    error: str | None  # Of a reply: NONE, or the first error in it.
    duration_us: int | None  # Of a reply: the time since its request.
    fault: str | None  # What the tap did to it.


def decode_request(
    frame: memoryview, api_key: int, version: int, names: TopicNames, with_fetches: bool = False
) -> Decoded | None:
    """The request `frame` without its length. None if it belongs to no transaction, or cannot be decoded."""
    if not knows(api_key, version):
        return None
    try:
        if api_key == PRODUCE:
            return _produce(frame, version, names)
        pos = body_of_request(frame, api_key, version)
        if api_key in DECODED or (with_fetches and api_key == FETCH):
            return _REQUESTS[api_key](request_class(api_key).decode(bytes(frame), pos, version)[0], names)
    except (Malformed, KeyError, UnicodeDecodeError):
        pass
    return None


def decode_reply(frame: memoryview, api_key: int, version: int, asked: Decoded, names: TopicNames) -> Decoded:
    """The reply `frame` without its length, to a request that was decoded."""
    response: Any
    try:
        raw = bytes(frame)
        response, _ = response_class(api_key).decode(raw, body_of_reply(raw, api_key, version), version)
    except Malformed as e:
        return Decoded(asked.transactional_id, asked.producer_id, asked.producer_epoch, {"malformed": str(e)})
    about, codes = _REPLIES[api_key](response, names)
    error = errors.name_of(next((code for code in codes if code), errors.NONE))
    if api_key == INIT and not response.error_code:
        return Decoded(asked.transactional_id, response.producer_id, response.producer_epoch, about, error)
    return Decoded(asked.transactional_id, asked.producer_id, asked.producer_epoch, about, error)


def topic_names_in(frame: memoryview, version: int) -> dict[bytes, str]:
    """The names of topics by their ids, in a Metadata reply without its length."""
    if version < METADATA_WITH_IDS or not knows(METADATA, version):
        return {}
    try:
        raw = bytes(frame)
        response: Any = response_class(METADATA).decode(raw, body_of_reply(raw, METADATA, version), version)[0]
    except Malformed:
        return {}
    return {topic.topic_id: topic.name for topic in response.topics if topic.name}


# --- requests ---------------------------------------------------------------------------------------------


_BEGINNING = named("transactional_id", "acks", "topic_data", "name", "topic_id", "partition_data", "index", "records")


def _produce(frame: memoryview, version: int, names: TopicNames) -> Decoded | None:
    """From the beginning of a request: its first partition, and the header of the batch for it."""
    first: dict[str, Any] = {}
    for name, value in values_in_request(PRODUCE, version, frame, _BEGINNING):
        first.setdefault(name, value)
        if name == "records":
            break
    if "transactional_id" not in first:
        return None
    about: dict[str, Any] = {"acks": first["acks"]}
    if first["topic_data"] < 1:
        return Decoded(first["transactional_id"], about=about)
    topic = names(first["topic_id"]) if "topic_id" in first else first["name"]
    about["partitions"] = [f"{topic}-{first['index']}"]
    about["has_more_partitions"] = first["topic_data"] > 1 or first["partition_data"] > 1
    records = first["records"]
    if len(records) < HEADER_BYTES:
        return Decoded(first["transactional_id"], about=about)
    header = HEADER.unpack_from(records)
    about["base_sequence"], about["records"] = header[RECORD_COUNT_FIELD - 1], header[RECORD_COUNT_FIELD]
    return Decoded(first["transactional_id"], header[PRODUCER_ID_FIELD], header[PRODUCER_ID_FIELD + 1], about)


def _init(request: Any, _: TopicNames) -> Decoded | None:
    if request.transactional_id is None:
        return None
    about = {"transaction_timeout_ms": request.transaction_timeout_ms}
    if request.producer_id < 0:
        return Decoded(request.transactional_id, about=about)
    return Decoded(request.transactional_id, request.producer_id, request.producer_epoch, about)


def _add_partitions(request: Any, _: TopicNames) -> Decoded | None:
    if not request.transactions:
        about = {"partitions": _listed(request.v3_and_below_topics)}
        who = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        return Decoded(request.v3_and_below_transactional_id, *who, about)
    first = request.transactions[0]
    about = {"partitions": _listed(first.topics)}
    if len(request.transactions) > 1:  # Only brokers ask for several.
        about["transactional_ids"] = [txn.transactional_id for txn in request.transactions]
    return Decoded(first.transactional_id, first.producer_id, first.producer_epoch, about)


def _listed(topics: Iterable[Any]) -> list[str]:
    return [f"{topic.name}-{partition}" for topic in topics for partition in topic.partitions]


def _add_offsets(request: Any, _: TopicNames) -> Decoded:
    about = {"group_id": request.group_id}
    return Decoded(request.transactional_id, request.producer_id, request.producer_epoch, about)


def _end(request: Any, _: TopicNames) -> Decoded:
    about = {"committed": request.committed}
    return Decoded(request.transactional_id, request.producer_id, request.producer_epoch, about)


def _commit_offsets(request: Any, _: TopicNames) -> Decoded:
    offsets = {
        f"{topic.name}-{partition.partition_index}": partition.committed_offset
        for topic in request.topics
        for partition in topic.partitions
    }
    about = {"group_id": request.group_id, "offsets": offsets}
    return Decoded(request.transactional_id, request.producer_id, request.producer_epoch, about)


def _markers(request: Any, _: TopicNames) -> Decoded:
    markers = [
        {
            "producer_id": marker.producer_id,
            "producer_epoch": marker.producer_epoch,
            "committed": marker.transaction_result,
            "partitions": [f"{t.name}-{partition}" for t in marker.topics for partition in t.partition_indexes],
        }
        for marker in request.markers
    ]
    if not markers:
        return Decoded(about={"markers": []})
    first = request.markers[0]
    return Decoded(None, first.producer_id, first.producer_epoch, {"markers": markers})


def _find_coordinator(request: Any, _: TopicNames) -> Decoded | None:
    if request.key_type != TRANSACTION_KEY:
        return None
    keys = list(request.coordinator_keys) or [request.key]
    return Decoded(keys[0], about={} if len(keys) == 1 else {"transactional_ids": keys})


def _fetch(request: Any, names: TopicNames) -> Decoded:
    offsets = {
        f"{topic.topic or names(topic.topic_id)}-{partition.partition}": partition.fetch_offset
        for topic in request.topics
        for partition in topic.partitions
    }
    return Decoded(about={"isolation": ISOLATION[bool(request.isolation_level)], "offsets": offsets})


_REQUESTS: dict[int, Callable[[Any, TopicNames], Decoded | None]] = {
    FETCH: _fetch,
    FIND_COORDINATOR: _find_coordinator,
    INIT: _init,
    ADD_PARTITIONS: _add_partitions,
    ADD_OFFSETS: _add_offsets,
    END: _end,
    MARKERS: _markers,
    COMMIT_OFFSETS: _commit_offsets,
}


# --- replies ----------------------------------------------------------------------------------------------

Answered = tuple[dict[str, Any], Iterable[int]]


def _by_partition(results: Iterable[tuple[str, int]]) -> Answered:
    """The errors of partitions; those without an error are a list."""
    found = list(results)
    about: dict[str, Any] = {"partitions": [where for where, code in found if not code]}
    failed = {where: errors.name_of(code) for where, code in found if code}
    if failed:
        about["errors"] = failed
    return about, [code for _, code in found]


def _produced(response: Any, names: TopicNames) -> Answered:
    found = [
        (f"{topic.name or names(topic.topic_id)}-{partition.index}", partition)
        for topic in response.responses
        for partition in topic.partition_responses
    ]
    about, codes = _by_partition((where, partition.error_code) for where, partition in found)
    about["base_offsets"] = {where: partition.base_offset for where, partition in found if not partition.error_code}
    return about, codes


def _added_partitions(response: Any, _: TopicNames) -> Answered:
    topics = list(response.results_by_topic_v3_and_below)
    for txn in response.results_by_transaction:
        topics += txn.topic_results
    about, codes = _by_partition(
        (f"{topic.name}-{result.partition_index}", result.partition_error_code)
        for topic in topics
        for result in topic.results_by_partition
    )
    return about, [response.error_code, *codes]


def _committed_offsets(response: Any, _: TopicNames) -> Answered:
    return _by_partition(
        (f"{topic.name}-{partition.partition_index}", partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    )


def _written_markers(response: Any, _: TopicNames) -> Answered:
    return _by_partition(
        (f"{topic.name}-{partition.partition_index}", partition.error_code)
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    )


def _found_coordinator(response: Any, _: TopicNames) -> Answered:
    found = list(response.coordinators) or [response]
    places = [{"node_id": place.node_id, "host": place.host, "port": place.port} for place in found]
    about: dict[str, Any] = {"coordinators": [place for place in places if place["node_id"] >= 0]}
    return about, [place.error_code for place in found]


def _ended(response: Any, _: TopicNames) -> Answered:
    about = {}
    if response.producer_id != NO_PRODUCER:  # From v5 on.
        about = {"next_producer_id": response.producer_id, "next_producer_epoch": response.producer_epoch}
    return about, [response.error_code]


def _only_error(response: Any, _: TopicNames) -> Answered:
    return {}, [response.error_code]


def _fetched(response: Any, names: TopicNames) -> Answered:
    partitions = dict(_fetched_partitions(response, names))
    codes = [partition["code"] for partition in partitions.values()]
    for partition in partitions.values():
        partition["error"] = errors.name_of(partition.pop("code"))
    return {"partitions": partitions}, [response.error_code, *codes]


def _fetched_partitions(response: Any, names: TopicNames) -> Iterator[tuple[str, dict[str, Any]]]:
    for topic in response.responses:
        for partition in topic.partitions:
            yield (
                f"{topic.topic or names(topic.topic_id)}-{partition.partition_index}",
                {
                    "high_watermark": partition.high_watermark,
                    "last_stable_offset": partition.last_stable_offset,
                    "bytes": len(partition.records or b""),
                    "aborted_transactions": len(partition.aborted_transactions or ()),
                    "code": partition.error_code,
                },
            )


_REPLIES: dict[int, Callable[[Any, TopicNames], Answered]] = {
    PRODUCE: _produced,
    FETCH: _fetched,
    FIND_COORDINATOR: _found_coordinator,
    INIT: _only_error,
    ADD_PARTITIONS: _added_partitions,
    ADD_OFFSETS: _only_error,
    END: _ended,
    MARKERS: _written_markers,
    COMMIT_OFFSETS: _committed_offsets,
}
