"""Asks a cluster, and returns what it said as a snapshot. All I/O of this package is here."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from fencepost.client.admin import (
    EARLIEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Answers,
    DescribedTxn,
    ListedTxn,
    Producer,
    Rpc,
    Where,
    broker_settings,
    describe_producers,
    describe_rpcs,
    describe_transaction,
    describe_transactions,
    list_offsets,
    list_transactions,
    partitions_of,
    read_batches,
)
from fencepost.client.client import KafkaClient
from fencepost.client.failures import BrokerError, ClientError
from fencepost.diagnose.coordinators import answered_by_another, unasked_coordinators
from fencepost.diagnose.snapshot import (
    TXN_TOPIC,
    Ends,
    HangingSnapshot,
    HistorySnapshot,
    LogEntry,
    LsoSnapshot,
    ProducersSnapshot,
    Settings,
    TxnSnapshot,
    TxnsSnapshot,
    first_open,
    is_coordinated,
)
from fencepost.machines.txn.records import decode_key, decode_value, encode_key, partition_for
from fencepost.protocol import errors
from fencepost.protocol.records import iter_records

Progress = Callable[[int, int], None]  # So many of so many offsets.

FIRST_WINDOW = 4096
ENTRIES_FOR_A_STORY = 50
ENTRIES_FOR_THE_LATEST = 1
MAX_TIMEOUT = "transaction.max.timeout.ms"
ABORT_CHECK = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
EXPIRATION = "transactional.id.expiration.ms"


def _no_progress(done: int, total: int) -> None:
    pass


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# --- all transactions -------------------------------------------------------------------------------------


def collect_txns(
    client: KafkaClient,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    reads_log: bool = False,
    progress: Progress = _no_progress,
) -> TxnsSnapshot:
    """Every transactional id; `reads_log` also finds out when each was last used, which no request tells."""
    listed = list_transactions(client, states, producer_ids)
    described = describe_transactions(client, {t.transactional_id: t.coordinator for t in listed.found.values()})
    updated_ms = _last_updates(client, progress) if reads_log else None
    return TxnsSnapshot(
        now_ms=now_ms(),
        listed=tuple(listed.found.values()),
        described=described.found,
        updated_ms=updated_ms,
        problems=(*listed.problems, *described.problems),
    )


def _last_updates(client: KafkaClient, progress: Progress) -> dict[str, int]:
    """When each transactional id was last written to its log."""
    spans = _spans(client, _log_partitions(client))
    total = sum(end - start for start, end in spans.values())
    done = 0
    updated: dict[str, int] = {}
    for where, (start, end) in spans.items():
        for header, batch in read_batches(client, where, start, end):
            for record in iter_records(batch):
                transactional_id = decode_key(record.key) if record.key else None
                if transactional_id is None:
                    continue
                txn = decode_value(transactional_id, record.value) if record.value else None
                if txn is None:
                    updated.pop(transactional_id, None)
                else:
                    updated[transactional_id] = txn.updated_ms
            progress(done + header.last_offset + 1 - start, total)
        done += end - start
    return updated


# --- partitions -------------------------------------------------------------------------------------------


def collect_lso(client: KafkaClient, topics: Iterable[str] | None = None) -> LsoSnapshot:
    """How far readers get in each partition, and for those that wait, whose transaction they wait for."""
    ends = _ends(client, partitions_of(client, topics))
    waiting = [where for where, end in ends.found.items() if end.gap > 0]
    producers = describe_producers(client, waiting)
    txns, unanswered = _txns_of(client, producers.found)
    pins = {where: pin for where, found in producers.found.items() if (pin := first_open(found)) is not None}
    first_record_ms = {
        where: _first_record_ms(client, where, pin)
        for where, pin in pins.items()
        if not is_coordinated(txns.get(pin.producer_id), where)
    }
    return LsoSnapshot(
        now_ms=now_ms(),
        ends=ends.found,
        producers=producers.found,
        txns=txns,
        first_record_ms=first_record_ms,
        rpcs=describe_rpcs(client, {txn.transactional_id for txn in txns.values()}) or {} if txns else {},
        unanswered_coordinators=unanswered,
        problems=(*ends.problems, *producers.problems),
    )


def collect_ends(client: KafkaClient, partitions: Collection[Where]) -> Mapping[Where, Ends]:
    """How far some partitions reach; those that do not answer are left out."""
    return _ends(client, partitions).found


def _ends(client: KafkaClient, partitions: Collection[Where]) -> Answers[Where, Ends]:
    # The stable end last: what is written between the two questions must not look as if it waited.
    high = list_offsets(client, partitions, READ_UNCOMMITTED)
    stable = list_offsets(client, list(high.found), READ_COMMITTED)
    found = {
        where: Ends(high_watermark=max(high.found[where], offset), last_stable_offset=offset)
        for where, offset in stable.found.items()
    }
    return Answers(found, [*high.problems, *stable.problems])


def _txns_of(
    client: KafkaClient, producers: Mapping[Where, tuple[Producer, ...]]
) -> tuple[dict[int, DescribedTxn], tuple[str, ...]]:
    """The transactions of those producers that have one open, by producer id; and which coordinators did not answer."""
    ids = {p.producer_id for found in producers.values() for p in found if p.txn_start_offset >= 0}
    if not ids:
        return {}, ()
    before = _coordinators(client)
    listed = list_transactions(client, producer_ids=ids)
    described = describe_transactions(client, {t.transactional_id: t.coordinator for t in listed.found.values()})
    after = _coordinators(client)
    unanswered = [*listed.problems, *described.problems]
    unanswered += before.problems or after.problems or unasked_coordinators(before.leaders, after.leaders)
    txns = {}
    for txn in described.found.values():
        problem = answered_by_another(txn, before.leaders, after.leaders)
        if problem is None:
            txns[txn.producer_id] = txn
        else:
            unanswered.append(problem)
    return txns, tuple(unanswered)


class _Coordinators(NamedTuple):
    """Who leads each partition of `__transaction_state`; none while the cluster has had no transaction."""

    leaders: tuple[int, ...] = ()
    problems: tuple[str, ...] = ()


def _coordinators(client: KafkaClient) -> _Coordinators:
    try:
        found = client.refresh([TXN_TOPIC])
    except BrokerError as e:  # Not everybody may look at it.
        return _Coordinators(problems=(f"whether all coordinators were asked is not known: {e}",))
    return _Coordinators(found[TXN_TOPIC].leaders if TXN_TOPIC in found else ())


def _first_record_ms(client: KafkaClient, where: Where, producer: Producer) -> int:
    offset = producer.txn_start_offset
    try:
        for header, _ in read_batches(client, where, offset, offset + 1):
            return header.base_timestamp
    except ClientError:
        pass  # Not allowed to read the topic, perhaps: then the age stays unknown.
    return -1


def collect_producers(client: KafkaClient, topic: str, partition: int | None = None) -> ProducersSnapshot:
    """The producers that the partitions of a topic remember."""
    partitions = partitions_of(client, [topic])
    if partition is not None:
        if Where(topic, partition) not in partitions:
            raise BrokerError(
                errors.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition}", f"the topic has {len(partitions)} partitions"
            )
        partitions = [Where(topic, partition)]
    producers = describe_producers(client, partitions)
    ids = {p.producer_id for found in producers.found.values() for p in found}
    listed: Answers[str, ListedTxn] = list_transactions(client, producer_ids=ids) if ids else Answers()
    return ProducersSnapshot(
        now_ms=now_ms(),
        producers=producers.found,
        txns={t.producer_id: t for t in listed.found.values()},
        problems=(*producers.problems, *listed.problems),
    )


def collect_hanging(client: KafkaClient, topics: Iterable[str] | None = None) -> HangingSnapshot:
    """What is open on partitions, what coordinators know of it, and what is still open then."""
    ends = _ends(client, partitions_of(client, topics))
    before = describe_producers(client, [where for where, end in ends.found.items() if end.gap > 0])
    txns, unanswered = _txns_of(client, before.found)
    after = describe_producers(
        client,
        [
            where
            for where, producers in before.found.items()
            if any(p.txn_start_offset >= 0 and not is_coordinated(txns.get(p.producer_id), where) for p in producers)
        ],
    )
    return HangingSnapshot(
        now_ms=now_ms(),
        partition_count=len(ends.found),
        before=before.found,
        txns=txns,
        after=after.found,
        unanswered_coordinators=unanswered,
        problems=(*ends.problems, *before.problems, *after.problems),
    )


# --- one transactional id ---------------------------------------------------------------------------------


def collect_history(
    client: KafkaClient, transactional_id: str, with_rpcs: bool = False, progress: Progress = _no_progress
) -> HistorySnapshot:
    """Every record of an id that its log still has, and its last requests if the cluster remembers them."""
    where = state_log_of(client, transactional_id)
    entries = _read_log(client, where, transactional_id, None, progress)
    return HistorySnapshot(
        now_ms=now_ms(),
        transactional_id=transactional_id,
        log=where,
        entries=entries,
        rpcs=_rpcs_of(client, transactional_id) if with_rpcs else None,
    )


def collect_last_steps(client: KafkaClient, transactional_id: str, wanted: int) -> tuple[LogEntry, ...]:
    """The last records of an id, and perhaps some more; none if the log cannot be read."""
    try:
        where = state_log_of(client, transactional_id)
        return _read_log(client, where, transactional_id, wanted, _no_progress)
    except ClientError:
        return ()


def _rpcs_of(client: KafkaClient, transactional_id: str) -> tuple[Rpc, ...] | None:
    found = describe_rpcs(client, [transactional_id])
    return None if found is None else found.get(transactional_id, ())


def collect_txn(
    client: KafkaClient,
    transactional_id: str,
    entries_wanted: int = ENTRIES_FOR_A_STORY,
    progress: Progress = _no_progress,
) -> TxnSnapshot:
    """What coordinator, log and partitions say of one id."""
    coordinator, txn = describe_transaction(client, transactional_id)
    problems: list[str] = []
    history: tuple[LogEntry, ...] | None = None
    try:
        where = state_log_of(client, transactional_id)
        history = _read_log(client, where, transactional_id, entries_wanted, progress)
    except ClientError as e:
        problems.append(f"the log of transactions cannot be read: {e}")
    similar: tuple[str, ...] = ()
    if txn is None:
        known = list_transactions(client)
        similar = tuple(difflib.get_close_matches(transactional_id, known.found, n=3))
    partitions = _partitions_named(txn, history or ())
    ends = _ends(client, partitions)
    producers = describe_producers(client, partitions)
    return TxnSnapshot(
        now_ms=now_ms(),
        transactional_id=transactional_id,
        coordinator=coordinator,
        txn=txn,
        history=history,
        ends=ends.found,
        producers=producers.found,
        settings=_settings(client),
        rpcs=_rpcs_of(client, transactional_id),
        similar=similar,
        problems=(*problems, *ends.problems, *producers.problems),
    )


def state_log_of(client: KafkaClient, transactional_id: str) -> Where | None:
    """The partition of `__transaction_state` that keeps an id; None while the cluster has had no transaction."""
    count = len(_log_partitions(client))
    return Where(TXN_TOPIC, partition_for(transactional_id, count)) if count else None


def _log_partitions(client: KafkaClient) -> list[Where]:
    """Those of `__transaction_state`, which is made when the first id registers."""
    try:
        return partitions_of(client, [TXN_TOPIC])
    except BrokerError as e:
        if e.code != errors.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return []


def _partitions_named(txn: DescribedTxn | None, history: Iterable[LogEntry]) -> list[Where]:
    """Those of the open transaction, and those of earlier ones: a late write may have left one of them open."""
    named = set(txn.partitions) if txn is not None else set()
    for entry in history:
        named.update(Where(*partition) for partition in (entry.txn.partitions if entry.txn is not None else ()))
    return sorted(named)


def _settings(client: KafkaClient) -> Settings:
    try:
        found = broker_settings(client, (MAX_TIMEOUT, ABORT_CHECK, EXPIRATION))
    except ClientError:
        return Settings()  # It takes more rights than the rest, and only rounds off what is said.

    def number(name: str) -> int | None:
        value = found.get(name, "")
        return int(value) if value.isascii() and value.isdigit() else None

    return Settings(
        max_timeout_ms=number(MAX_TIMEOUT), abort_check_ms=number(ABORT_CHECK), expiration_ms=number(EXPIRATION)
    )


def _spans(client: KafkaClient, partitions: Collection[Where]) -> dict[Where, tuple[int, int]]:
    """The first offset of each partition, and the one after its last."""
    start = list_offsets(client, partitions, timestamp=EARLIEST)
    end = list_offsets(client, partitions)
    if problems := start.problems + end.problems:
        raise BrokerError(errors.LEADER_NOT_AVAILABLE, "reading transactions", problems[0])
    return {where: (start.found[where], end.found[where]) for where in partitions}


def _read_log(
    client: KafkaClient, where: Where | None, transactional_id: str, wanted: int | None, progress: Progress
) -> tuple[LogEntry, ...]:
    """The last `wanted` entries of an id (None: all), and perhaps some more; none if there is no log yet.

    The log is read from its end in windows that grow, as what is asked for is mostly of the last minutes.
    """
    if where is None:
        return ()
    [(start, end)] = _spans(client, [where]).values()
    total = end - start
    entries: list[LogEntry] = []
    window = FIRST_WINDOW if wanted is not None else total
    upper = end
    while upper > start and (wanted is None or len(entries) < wanted):
        lower = max(start, upper - window)
        entries = [*_entries_between(client, where, transactional_id, lower, upper, end, total, progress), *entries]
        upper, window = lower, window * 2
    return tuple(entries)


def _entries_between(
    client: KafkaClient,
    where: Where,
    transactional_id: str,
    lower: int,
    upper: int,
    end: int,
    total: int,
    progress: Progress,
) -> list[LogEntry]:
    key = encode_key(transactional_id)
    entries = []
    for header, batch in read_batches(client, where, lower, upper):
        progress(end - upper + max(header.last_offset + 1 - lower, 0), total)
        # Nearly all batches are of other ids: a look at the bytes is much cheaper than decoding.
        if header.codec == 0 and key not in bytes(batch):
            continue
        for record in iter_records(batch):
            if record.key != key or not lower <= record.offset < upper:
                continue
            txn = decode_value(transactional_id, record.value) if record.value is not None else None
            if txn is not None or record.value is None:
                entries.append(LogEntry(offset=record.offset, timestamp_ms=record.timestamp, txn=txn))
    return entries
