"""What an embedded broker did since the last look: requests, states, records of `__transaction_state`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from fencepost.client.admin.answers import DescribedTxn, NamedPartition, Rpc
from fencepost.client.admin.partitions import EARLIEST, list_offsets, partitions_of
from fencepost.client.admin.transactions import describe_rpcs, describe_transactions, list_transactions
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.client.fetching import read_batches
from fencepost.demo.disk import states_on_disk
from fencepost.diagnose.collect.state_log import has_state_log
from fencepost.diagnose.collect.timeline import Timelines
from fencepost.diagnose.history import rpc_row, transitions_of
from fencepost.diagnose.snapshot import TXN_TOPIC, LogEntry
from fencepost.diagnose.timeline.timeline import TimelineSnapshot, diagnose_timeline
from fencepost.diagnose.words import plain
from fencepost.machines.txn.records import decode_key, decode_value
from fencepost.protocol import errors
from fencepost.protocol.records import iter_records
from fencepost.tap.decoding import WireEvent
from fencepost.tap.text import said_by
from fencepost.web.machine import machine_document

Document = dict[str, Any]
# How many records of an id are remembered, beside the new ones.
MOST_ENTRIES = 50
NO_RPCS = "No request of a transaction was sent."
NO_FETCHES = "No request was sent: the record came with an earlier Fetch."


class StateRecord(NamedTuple):
    """A record of `__transaction_state` with its place."""

    partition: int
    transactional_id: str
    entry: LogEntry


class Observation(NamedTuple):
    """What is new since the last look (requests, records), and what is now (states)."""

    rpcs: tuple[tuple[str, Rpc], ...] = ()
    records: tuple[StateRecord, ...] = ()
    txns: tuple[DescribedTxn, ...] = ()
    states_on_disk: Mapping[str, str] | None = None  # While the broker does not run.
    problem: str | None = None
    fetches: tuple[tuple[str, Rpc], ...] | None = None  # With the name of their client, if readers are watched.

    def document(self, history: Mapping[str, Iterable[LogEntry]]) -> Document:
        """`history`: all records of each transactional id so far, from which the cause of each new one follows."""
        causes = {
            (id_, transition.offset): transition
            for id_, entries in history.items()
            for transition in transitions_of(tuple(entries))
        }
        return {
            "rpcs": [
                {"transactional_id": id_, **asdict(rpc_row(rpc))} for id_, rpc in (*self.rpcs, *(self.fetches or ()))
            ],
            "records": [
                {
                    "topic_partition": f"{TXN_TOPIC}-{record.partition}",
                    "transactional_id": record.transactional_id,
                    **transition_document(asdict(causes[record.transactional_id, record.entry.offset])),
                }
                for record in self.records
            ],
            "txns": [txn_document(txn) for txn in self.txns],
            "states_on_disk": self.states_on_disk,
            "problem": self.problem,
            "without_rpcs": NO_RPCS if self.fetches is None else NO_FETCHES,
        }


def fetches_in(events: Iterable[WireEvent]) -> tuple[tuple[str, Rpc], ...]:
    """The fetches that brought records, with the name of their client. A reader repeats the others all the time."""
    asked: dict[tuple[int, int], WireEvent] = {}
    found = []
    for event in events:
        key = event.connection, event.correlation_id
        if event.api != "Fetch":
            continue
        if event.kind == "request":
            asked[key] = event
        elif event.kind == "reply" and (request := asked.pop(key, None)) is not None:
            size = sum(partition["bytes"] for partition in event.about.get("partitions", {}).values())
            if size:
                found.append((event.client_id, _fetch(request, event, size)))
    return tuple(found)


def _fetch(request: WireEvent, reply: WireEvent, size: int) -> Rpc:
    host, _, port = reply.client.rpartition(":")
    return Rpc(
        request.at_us // 1000,
        reply.api,
        reply.version,
        reply.client_id,
        host,
        int(port),
        -1,
        -1,
        f"{said_by(request)}: {size} bytes",
        getattr(errors, reply.error or "", errors.NONE),
        reply.duration_us or 0,
    )


def drawing_of(snapshot: TimelineSnapshot) -> Document:
    """The last transaction of an id: its states and its swim-lanes, as the page of a transactional id has them."""
    timeline = plain(diagnose_timeline(snapshot))
    for step in timeline["steps"]:
        for source in step["sources"]:
            source["where"] = None  # The pages of the workbench are about another cluster.
    txn = snapshot.txn.txn
    return {
        "transactional_id": snapshot.txn.transactional_id,
        "machine": machine_document(txn.state if txn is not None else None, timeline["way"]),
        "lanes": timeline["lanes"],
        "steps": timeline["steps"],
    }


def txn_document(txn: DescribedTxn) -> Document:
    return {**txn._asdict(), "partitions": [str(where) for where in txn.partitions]}


def transition_document(transition: Document) -> Document:
    return {**transition, "partitions": [f"{topic}-{number}" for topic, number in transition["partitions"]]}


def _client(bootstrap_servers: str) -> KafkaClient:
    return KafkaClient({"bootstrap.servers": bootstrap_servers, "client.id": "fencepost-learn"}, 0)


class BrokerWatcher:
    """Looks at one broker, again and again. Not for several threads at once."""

    def __init__(self) -> None:
        self.history: dict[str, list[LogEntry]] = {}
        self._ends: dict[NamedPartition, int] = {}
        self._rpcs: set[tuple[str, Rpc]] = set()
        self._timelines = Timelines()

    def look(self, bootstrap_servers: str) -> Observation:
        try:
            with _client(bootstrap_servers) as client:
                return self._look(client)
        except ClientError as e:
            return Observation(problem=str(e))

    def draw(self, bootstrap_servers: str, transactional_id: str) -> Document | None:
        """The last transaction of an id; None if the broker does not answer."""
        try:
            with _client(bootstrap_servers) as client:
                return drawing_of(self._timelines.collect(client, transactional_id))
        except ClientError:
            return None

    def look_at_disk(self, folder: Path, *more_ids: str) -> Observation:
        """The last state of each id that was seen, and of more, from the files of a broker that does not run."""
        found = {id_: states_on_disk(folder, id_) for id_ in sorted({*self.history, *more_ids})}
        return Observation(states_on_disk={id_: states[-1] for id_, states in found.items() if states})

    def _look(self, client: KafkaClient) -> Observation:
        if not has_state_log(client):
            return Observation()
        for entries in self.history.values():
            del entries[:-MOST_ENTRIES]
        listed = list_transactions(client)
        described = describe_transactions(client, {id_: txn.coordinator for id_, txn in listed.found.items()})
        remembered = describe_rpcs(client, listed.found) or {}
        # In the order of their answers, those of several ids together.
        rpcs = sorted(
            ((id_, rpc) for id_, found in remembered.items() for rpc in found),
            key=lambda seen: (seen[1].duration_us < 0, seen[1].at_ms * 1000 + seen[1].duration_us),
        )
        new = tuple(seen for seen in rpcs if seen not in self._rpcs)
        self._rpcs = set(rpcs)
        records = tuple(self._new_records(client))
        problems = [*listed.problems, *described.problems]
        return Observation(
            new,
            records,
            tuple(described.found[id_] for id_ in sorted(described.found)),
            problem=problems[0] if problems else None,
        )

    def _new_records(self, client: KafkaClient) -> Iterable[StateRecord]:
        partitions = partitions_of(client, [TXN_TOPIC])
        starts = self._ends or list_offsets(client, partitions, timestamp=EARLIEST).found
        ends = list_offsets(client, partitions).found
        found: list[tuple[int, StateRecord]] = []
        for where, end in ends.items():
            start = starts.get(where, 0)
            if end <= start:
                continue
            latest_ms = 0  # A record may be older than the one before it: the order of the log counts.
            for _, batch in read_batches(client, where, start, end):
                for record in iter_records(batch):
                    id_ = decode_key(record.key) if record.key else None
                    if id_ is None or not start <= record.offset < end:
                        continue
                    txn = decode_value(id_, record.value) if record.value is not None else None
                    entry = LogEntry(offset=record.offset, timestamp_ms=record.timestamp, txn=txn)
                    latest_ms = max(latest_ms, record.timestamp)
                    self.history.setdefault(id_, []).append(entry)
                    found.append((latest_ms, StateRecord(where.partition, id_, entry)))
        self._ends = {**starts, **ends}
        return [record for _, record in sorted(found, key=lambda each: each[0])]
