"""Asks the leaders of partitions: how far readers get, which producers wrote there, which transactions are open."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import replace
from typing import NamedTuple

from fencepost.client.admin.answers import Answers, DescribedTxn, ListedTxn, NamedPartition, Producer
from fencepost.client.admin.groups import GroupOffsets
from fencepost.client.admin.partitions import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    describe_producers,
    list_offsets,
    partitions_of,
    read_batches,
    why_topics_are_hidden,
)
from fencepost.client.admin.transactions import (
    describe_rpcs,
    describe_transactions,
    list_transactions,
    why_ids_are_hidden,
)
from fencepost.client.client import KafkaClient
from fencepost.client.failures import BrokerError, ClientError
from fencepost.counting import counted
from fencepost.diagnose.collect.affected import offsets_on
from fencepost.diagnose.collect.clock import now_ms
from fencepost.diagnose.collect.coordinators import answered_by_another, unasked_coordinators
from fencepost.diagnose.snapshot import (
    TXN_TOPIC,
    Ends,
    HangingSnapshot,
    LsoSnapshot,
    OpenTxn,
    ProducersSnapshot,
    first_open,
    is_coordinated,
    is_out_of_sight,
    uncoordinated,
    without,
)
from fencepost.diagnose.words import listed
from fencepost.machines.txn.states import ONGOING
from fencepost.protocol import errors


def collect_lso(
    client: KafkaClient, topics: Iterable[str] | None = None, with_groups: bool = True, partition: int | None = None
) -> LsoSnapshot:
    """How far readers get in each partition, the transactions that readers wait for, and the groups that wait."""
    hidden = _hidden_topics(client) if topics is None else []
    ends = ends_of(client, _places(client, topics, partition))
    waiting = [where for where, end in ends.found.items() if end.gap > 0]
    producers = describe_producers(client, waiting)
    txns, unanswered = txns_of(client, producers.found)
    settled = settled_since(client, uncoordinated(producers.found, txns), txns)
    open_ = without(producers.found, settled)
    pins = {where: pin for where, found in open_.items() if (pin := first_open(found)) is not None}
    first_record_ms = {
        where: _first_record_ms(client, where, pin)
        for where, pin in pins.items()
        if not is_coordinated(txns.get(pin.producer_id), where)
    }
    groups = offsets_on(client, pins) if with_groups else Answers[str, GroupOffsets]()
    return LsoSnapshot(
        now_ms=now_ms(),
        ends=ends.found,
        producers=open_,
        denied=frozenset(producers.denied),
        txns=txns,
        first_record_ms=first_record_ms,
        rpcs=describe_rpcs(client, {txn.transactional_id for txn in txns.values()}) or {} if txns else {},
        groups=groups.found,
        warnings=tuple(groups.problems),
        unanswered_coordinators=unanswered,
        problems=(*hidden, *ends.problems, *producers.problems),
    )


def _hidden_topics(client: KafkaClient) -> list[str]:
    """Why there may be more topics than the cluster names, with the ids that are open on such topics."""
    try:
        refusal = why_topics_are_hidden(client)
        if refusal is None:
            return []
        open_ = list_transactions(client, [ONGOING.kafka_name]).found.values()
        described = describe_transactions(client, {txn.transactional_id: txn.coordinator for txn in open_}).found
    except ClientError as e:
        return [f"it is not known whether this user may see every topic: {e}"]
    holders = sorted(f"`{txn.transactional_id}`" for txn in described.values() if is_out_of_sight(txn))
    verb = "is" if len(holders) == 1 else "are"
    what = "topics may be hidden from this user" + (f", and {listed(holders)} {verb} open there" if holders else "")
    return [f"{what}: {refusal}"]


def settled_since(client: KafkaClient, suspects: Set[OpenTxn], txns: Mapping[int, DescribedTxn]) -> set[OpenTxn]:
    """Those of `suspects` that a second look clears: they have ended, or `txns` has a coordinator for them.

    The leader of a partition and the coordinator are asked one after the other. The coordinator may have written the
    markers in between, or a new transaction may have begun.
    """
    if not suspects:
        return set()
    again = describe_producers(client, {suspect.where for suspect in suspects}).found
    left = uncoordinated(again, txns)
    return {suspect for suspect in suspects if suspect.where in again and suspect not in left}


def collect_ends(client: KafkaClient, partitions: Collection[NamedPartition]) -> Mapping[NamedPartition, Ends]:
    """The ends of some partitions; partitions that do not answer are left out."""
    return ends_of(client, partitions).found


def ends_of(client: KafkaClient, partitions: Collection[NamedPartition]) -> Answers[NamedPartition, Ends]:
    # The last stable offset comes second: a record that is written between the two requests must not look as if it
    # waited.
    high = list_offsets(client, partitions, READ_UNCOMMITTED)
    stable = list_offsets(client, list(high.found), READ_COMMITTED)
    found = {
        where: Ends(high_watermark=max(high.found[where], offset), last_stable_offset=offset)
        for where, offset in stable.found.items()
    }
    return Answers(found, [*high.problems, *stable.problems])


def txns_of(
    client: KafkaClient, producers: Mapping[NamedPartition, tuple[Producer, ...]]
) -> tuple[dict[int, DescribedTxn], tuple[str, ...]]:
    """The open transactions of the producers, by producer id, and why one that is not here may have an owner."""
    ids = {p.producer_id for found in producers.values() for p in found if p.txn_start_offset >= 0}
    if not ids:
        return {}, ()
    before = _coordinators(client)
    listed = list_transactions(client, producer_ids=ids)
    described = describe_transactions(client, {t.transactional_id: t.coordinator for t in listed.found.values()})
    after = _coordinators(client)
    unanswered = [*listed.problems, *described.problems]
    unanswered += before.problems or after.problems or unasked_coordinators(before.leaders, after.leaders)
    if ids - {txn.producer_id for txn in listed.found.values()}:
        unanswered += _hidden_ids(client)
    txns = {}
    for txn in described.found.values():
        problem = answered_by_another(txn, before.leaders, after.leaders)
        if problem is None:
            txns[txn.producer_id] = txn
        else:
            unanswered.append(problem)
    return txns, tuple(unanswered)


def _hidden_ids(client: KafkaClient) -> list[str]:
    try:
        why = why_ids_are_hidden(client)
    except ClientError as e:
        why = f"it is not known whether this user may see every transactional id: {e}"
    return [why] if why is not None else []


class _Coordinators(NamedTuple):
    """The leader of each partition of `__transaction_state`; empty while the cluster has had no transaction."""

    leaders: tuple[int, ...] = ()
    problems: tuple[str, ...] = ()


def _coordinators(client: KafkaClient) -> _Coordinators:
    try:
        found = client.refresh([TXN_TOPIC])
    except BrokerError as e:  # Not every user is allowed to see the topic.
        return _Coordinators(problems=(f"it is not known whether all coordinators were asked: {e}",))
    return _Coordinators(found[TXN_TOPIC].leaders if TXN_TOPIC in found else ())


def _first_record_ms(client: KafkaClient, where: NamedPartition, producer: Producer) -> int:
    offset = producer.txn_start_offset
    try:
        for header, _ in read_batches(client, where, offset, offset + 1):
            return header.base_timestamp
    except ClientError:
        pass  # For example, the user is not allowed to read the topic. Then the age stays unknown.
    return -1


def _places(client: KafkaClient, topics: Iterable[str] | None, partition: int | None) -> list[NamedPartition]:
    """The partitions of some topics (None: of all), or one partition of each. Raises BrokerError if one is missing."""
    found = partitions_of(client, topics)
    wanted = [where for where in found if partition in (None, where.partition)]
    if partition is not None and not wanted:
        there = counted(len(found), "partition")
        raise BrokerError(errors.UNKNOWN_TOPIC_OR_PARTITION, f"{found[0].topic}-{partition}", f"the topic has {there}")
    return wanted


def collect_producers(client: KafkaClient, topic: str, partition: int | None = None) -> ProducersSnapshot:
    """The producers that the partitions of a topic remember."""
    producers = describe_producers(client, _places(client, [topic], partition))
    ids = {p.producer_id for found in producers.found.values() for p in found}
    listed: Answers[str, ListedTxn] = list_transactions(client, producer_ids=ids) if ids else Answers()
    return ProducersSnapshot(
        now_ms=now_ms(),
        producers=producers.found,
        txns={t.producer_id: t for t in listed.found.values()},
        problems=(*producers.problems, *listed.problems),
    )


def collect_hanging(
    client: KafkaClient, topics: Iterable[str] | None = None, partition: int | None = None
) -> HangingSnapshot:
    """The transactions that are open on partitions, the answers of their coordinators, and what is open after that."""
    hidden = _hidden_topics(client) if topics is None else []
    found = hanging_on(client, _places(client, topics, partition))
    return replace(found, problems=(*hidden, *found.problems))


def hanging_on(client: KafkaClient, partitions: Collection[NamedPartition]) -> HangingSnapshot:
    ends = ends_of(client, partitions)
    before = describe_producers(client, [where for where, end in ends.found.items() if end.gap > 0])
    txns, unanswered = txns_of(client, before.found)
    after = describe_producers(
        client,
        {suspect.where for suspect in uncoordinated(before.found, txns)},
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
