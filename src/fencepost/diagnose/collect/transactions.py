"""Asks about transactional ids, all of them or one: their coordinators, `__transaction_state`, their partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Set

from fencepost.client.admin.answers import Answers, DescribedTxn, NamedPartition, Rpc
from fencepost.client.admin.configs import describe_broker_configs
from fencepost.client.admin.groups import GroupOffsets
from fencepost.client.admin.transactions import (
    describe_rpcs,
    describe_transaction,
    describe_transactions,
    list_transactions,
)
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.counting import whole_number
from fencepost.diagnose.collect.affected import offsets_on
from fencepost.diagnose.collect.look import (
    Coordinated,
    Producers,
    Seen,
    hidden_topics,
    judge,
    now_ms,
    see,
    see_all,
    txns_of,
)
from fencepost.diagnose.collect.state_log import (
    Progress,
    has_state_log,
    no_progress,
    read_log,
    read_state_memory,
    state_log_of,
)
from fencepost.diagnose.snapshot import (
    MARKERS_TAKE_MS,
    ClusterSettings,
    HistorySnapshot,
    LogEntry,
    TxnSnapshot,
    TxnsSnapshot,
    by_producer,
    is_decided,
    is_open,
    leftovers,
    open_txn,
    producer_ids_of,
    without,
)
from fencepost.protocol.messages import DescribeTransactionsRequest
from fencepost.spelling import similar_to

# As `see_all`.
Search = Callable[[KafkaClient, Set[NamedPartition], Set[NamedPartition]], Seen]
# As `read_log`.
ReadLog = Callable[[KafkaClient, NamedPartition | None, str, int, Progress], tuple[LogEntry, ...]]
SIMILAR_IDS = 3
ENTRIES_FOR_A_STORY = 50
ENTRIES_FOR_THE_LATEST = 1
MAX_TIMEOUT = "transaction.max.timeout.ms"
ABORT_CHECK = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
EXPIRATION = "transactional.id.expiration.ms"
MAX_INT64 = 2**63 - 1
PAUSE_S = 0.05


def collect_txns(
    client: KafkaClient,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    reads_log: bool = False,
    progress: Progress = no_progress,
    describes: Callable[[str], bool] = lambda state: True,
) -> TxnsSnapshot:
    """Every transactional id; with `reads_log`, also when each was last used, which only the log shows.

    `describes` chooses the states in which an id is described: idle ids can be very many.
    """
    listed = list_transactions(client, states, producer_ids)
    wanted = {t.transactional_id: t.coordinator for t in listed.found.values() if describes(t.state)}
    described = describe_transactions(client, wanted)
    memory = read_state_memory(client, progress) if reads_log else None
    return TxnsSnapshot(
        now_ms=now_ms(),
        listed=tuple(listed.found.values()),
        described=described.found,
        updated_ms=memory.updated_ms if memory is not None else None,
        problems=(*listed.problems, *described.problems, *(memory.problems if memory is not None else ())),
    )


def collect_history(
    client: KafkaClient, transactional_id: str, with_rpcs: bool = False, progress: Progress = no_progress
) -> HistorySnapshot:
    """Every record of an id that is still in the log, and its last requests if the brokers remember them."""
    where = state_log_of(client, transactional_id)
    entries = read_log(client, where, transactional_id, None, progress)
    return HistorySnapshot(
        now_ms=now_ms(),
        transactional_id=transactional_id,
        log=where,
        entries=entries,
        rpcs=_rpcs_of(client, transactional_id) if with_rpcs else None,
    )


def collect_open_txns(client: KafkaClient) -> TxnsSnapshot:
    """Every transactional id; only those with an open transaction are described."""
    return collect_txns(client, describes=is_open)


def collect_txn(
    client: KafkaClient,
    transactional_id: str,
    entries_wanted: int = ENTRIES_FOR_A_STORY,
    everywhere: bool = True,
    progress: Progress = no_progress,
    read: ReadLog = read_log,
    search: Search = see_all,
) -> TxnSnapshot:
    """What the coordinator, the log and the leaders of partitions know about one id.

    With `everywhere`, `search` looks for producers of the id on every partition of the cluster where readers wait: a
    transaction may be open on a partition that neither the coordinator nor the log names. `see_all` takes as many
    requests as `collect_hanging`: a few for each broker.
    """
    coordinator, txn = _describe(client, transactional_id)
    problems: list[str] = []
    history: tuple[LogEntry, ...] | None = None
    try:
        where = state_log_of(client, transactional_id)
        history = read(client, where, transactional_id, entries_wanted, progress)
    except ClientError as e:
        problems.append(f"the log of transactions cannot be read: {e}")
    similar: tuple[str, ...] = ()
    if txn is None:
        known = list_transactions(client)
        similar = similar_ids(transactional_id, known.found)
    named, open_now = _partitions_named(txn, history or ()), set(txn.partitions if txn is not None else ())
    mine = producer_ids_of(txn, history or ())

    def ask(client: KafkaClient, producers: Producers) -> Coordinated:
        """Of this id, what its coordinator says now if it did not list all that is open; of others, what theirs say."""
        txn_now = _describe(client, transactional_id)[1] if leftovers(producers, txn, history or ()) else txn
        others = {where: tuple(p for p in found if p.producer_id not in mine) for where, found in producers.items()}
        txns, unanswered = txns_of(client, others) if everywhere else ({}, ())
        return {**txns, **by_producer(mine, txn_now)}, unanswered

    def matters(producer_id: int, txns: Mapping[int, DescribedTxn]) -> bool:
        return producer_id in mine or (everywhere and producer_id not in txns)

    look = judge(client, search(client, named, open_now) if everywhere else see(client, named, named), ask, matters)
    problems += hidden_topics(client) if everywhere else []
    hanging = {open_txn(*found) for found in look.open_producers() if look.hangs(*found)}
    # What has begun since the coordinator was first asked.
    begun = leftovers(look.producers, txn, history or ()) - hanging
    held = {where for where, producer in look.open_producers() if producer.producer_id in mine}
    groups = offsets_on(client, held) if everywhere else Answers[str, GroupOffsets]()
    strangers = {found for found in hanging if found.producer_id not in mine | set(look.txns)} if everywhere else set()
    return TxnSnapshot(
        now_ms=now_ms(),
        transactional_id=transactional_id,
        coordinator=coordinator,
        txn=txn,
        history=history,
        ends=look.ends,
        producers=without(look.producers, begun),
        nameless=tuple(sorted(strangers)),
        settings=_settings(client),
        rpcs=_rpcs_of(client, transactional_id),
        similar=similar,
        groups=groups.found,
        warnings=tuple(groups.problems),
        problems=(*problems, *look.unanswered_coordinators, *look.problems),
    )


def similar_ids(transactional_id: str, known: Iterable[str], at_most: int = SIMILAR_IDS) -> tuple[str, ...]:
    """Ids that may have been meant: first those that begin with the given text."""
    ids = sorted(known)
    longer = [id_ for id_ in ids if id_.startswith(transactional_id)]
    return tuple(dict.fromkeys([*longer, *similar_to(transactional_id, ids, at_most)]))[:at_most]


def collect_settled(client: KafkaClient, transactional_id: str) -> DescribedTxn | None:
    """The transaction of an id; if it is decided, as it is when its markers are written, unless they take too long.

    Apache Kafka answers EndTxn before it writes the markers, so an id may be in Prepare* although its client is done.
    """
    deadline = time.monotonic() + MARKERS_TAKE_MS / 1000
    while True:
        _, txn = _describe(client, transactional_id)
        if txn is None or not is_decided(txn.state) or time.monotonic() > deadline:
            return txn
        time.sleep(PAUSE_S)


def _describe(client: KafkaClient, transactional_id: str) -> tuple[int | None, DescribedTxn | None]:
    """The coordinator of an id, and its description of the id; None for both while the cluster has had no transaction.

    To ask for the coordinator would create `__transaction_state`.
    """
    # A broker that cannot answer is an error, also before the first transaction.
    client.any_broker().session.version_for(DescribeTransactionsRequest)
    return describe_transaction(client, transactional_id) if has_state_log(client) else (None, None)


def _rpcs_of(client: KafkaClient, transactional_id: str) -> tuple[Rpc, ...] | None:
    found = describe_rpcs(client, [transactional_id])
    return None if found is None else found.get(transactional_id, ())


def _partitions_named(txn: DescribedTxn | None, history: Iterable[LogEntry]) -> set[NamedPartition]:
    """The partitions of the open transaction and of earlier ones, which a late write may have left open."""
    named = set(txn.partitions) if txn is not None else set()
    for entry in history:
        named.update(
            NamedPartition(*partition) for partition in (entry.txn.partitions if entry.txn is not None else ())
        )
    return named


def _settings(client: KafkaClient) -> ClusterSettings:
    try:
        found = describe_broker_configs(client, min(client.brokers()), (MAX_TIMEOUT, ABORT_CHECK, EXPIRATION))
    except ClientError:
        return (
            ClusterSettings()
        )  # This question needs more permissions than the others, and its answer is not essential.

    def number(name: str) -> int | None:
        return whole_number(found.get(name, ""), MAX_INT64)

    return ClusterSettings(
        max_timeout_ms=number(MAX_TIMEOUT), abort_check_ms=number(ABORT_CHECK), expiration_ms=number(EXPIRATION)
    )
