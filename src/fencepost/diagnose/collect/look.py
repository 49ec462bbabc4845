"""One look at the partitions of a cluster: who keeps their readers waiting, and which coordinator will end it.

The answers of several brokers are never of one moment, so the order of the questions is fixed:

1. the high watermarks, then the last stable offsets: what is written in between must not look as if it waited;
2. the producers of the partitions where readers wait;
3. the coordinators, which say what these producers have open;
4. the producers again where something is open that no coordinator lists: it may have ended, or begun, in between.

The leaders of `__transaction_state` before and after the questions show whether all coordinators were asked. One that
is down is missing in the metadata, and each of the others lists only its own ids. The transactions on a partition
without a leader, or on one that moved meanwhile, are unknown; they must not be taken for ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple, TypeVar

from fencepost.client.admin.answers import Answers, DescribedTxn, NamedPartition, Producer
from fencepost.client.admin.partitions import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    describe_producers,
    list_offsets,
    partitions_of,
    why_topics_are_hidden,
)
from fencepost.client.admin.transactions import describe_transactions, list_transactions, why_ids_are_hidden
from fencepost.client.client import KafkaClient
from fencepost.client.failures import BrokerError, ClientError
from fencepost.diagnose.snapshot import (
    TXN_TOPIC,
    Ends,
    Look,
    first_open,
    is_out_of_sight,
    settled,
    uncoordinated,
    without,
)
from fencepost.diagnose.words import listed
from fencepost.machines.txn.records import partition_for
from fencepost.machines.txn.states import ONGOING


def now_ms() -> int:
    return time.time_ns() // 1_000_000


T = TypeVar("T")
Producers = Mapping[NamedPartition, tuple[Producer, ...]]
# The open transactions of producers, by producer id, and why one that is not there may have an owner.
Coordinated = tuple[Mapping[int, DescribedTxn], tuple[str, ...]]
Ask = Callable[[KafkaClient, Producers], Coordinated]
# Whether a caller wants to know if the transaction of a producer id hangs, given the transactions of all.
Matters = Callable[[int, Mapping[int, DescribedTxn]], bool]


class Seen(NamedTuple):
    """The answers of the leaders of partitions: the first two questions."""

    existing: frozenset[NamedPartition]
    ends: Answers[NamedPartition, Ends]
    producers: Answers[NamedPartition, tuple[Producer, ...]]


def see(
    client: KafkaClient,
    partitions: Iterable[NamedPartition],
    named: Set[NamedPartition] = frozenset(),
    listed: Set[NamedPartition] = frozenset(),
) -> Seen:
    """The ends of partitions, and the producers of those where readers wait and of the named ones.

    Those in `listed` come from a list of all topics. If one of these topics was deleted since, no answer is missing.
    """
    asked = frozenset(partitions)
    ends = _of_those_left(ends_of(client, sorted(asked)), listed)
    waiting = {where for where, found in ends.found.items() if found.gap > 0}
    producers = describe_producers(client, sorted((waiting | named) - ends.gone.keys()))
    deleted = producers.gone.keys() & listed
    found = {where: answer for where, answer in ends.found.items() if where not in deleted}
    return Seen(asked - deleted, replace(ends, found=found), _of_those_left(producers, listed))


def _of_those_left(answers: Answers[NamedPartition, T], listed: Set[NamedPartition]) -> Answers[NamedPartition, T]:
    deleted = {problem for where, problem in answers.gone.items() if where in listed}
    return replace(answers, problems=[problem for problem in answers.problems if problem not in deleted])


def see_all(
    client: KafkaClient, named: Set[NamedPartition] = frozenset(), open_now: Set[NamedPartition] = frozenset()
) -> Seen:
    """All partitions of the cluster, with the producers of the named ones, too.

    Of the named ones, those of earlier transactions may have been deleted since; those in `open_now` are asked anyway.
    """
    existing = frozenset(partitions_of(client))
    return see(client, existing | open_now, (named & existing) | open_now, existing - open_now)


def see_again(client: KafkaClient, before: Seen, named: Set[NamedPartition], open_now: Set[NamedPartition]) -> Seen:
    """What was seen before, with new answers about the named partitions, as for `see_all`."""
    existing = before.existing | _created_since(client, named - before.existing)
    asked = (named & existing) | open_now
    now = see(client, asked, asked, asked - open_now)
    return Seen(existing, _merged(before.ends, now.ends), _merged(before.producers, now.producers))


def _created_since(client: KafkaClient, missing: Set[NamedPartition]) -> Set[NamedPartition]:
    if not missing:
        return frozenset()
    try:
        topics = client.refresh(sorted({where.topic for where in missing}))
    except BrokerError:  # This user may not see one of the topics.
        return frozenset()
    return {w for w in missing if w.topic in topics and w.partition < len(topics[w.topic].leaders)}


def _merged(before: Answers[NamedPartition, T], now: Answers[NamedPartition, T]) -> Answers[NamedPartition, T]:
    return Answers({**before.found, **now.found}, list(dict.fromkeys((*before.problems, *now.problems))))


def txns_of(client: KafkaClient, producers: Producers) -> Coordinated:
    """The open transactions of the producers, asked of the coordinators."""
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


def judge(client: KafkaClient, seen: Seen, ask: Ask = txns_of, matters: Matters | None = None) -> Look:
    """The last two questions, about what was seen; the last one about what `matters`."""
    producers = seen.producers.found
    txns, unanswered = ask(client, producers)
    orphans = uncoordinated(producers, txns)
    suspects = {orphan for orphan in orphans if matters is None or matters(orphan.producer_id, txns)}
    asked = {suspect.where for suspect in suspects}
    again = describe_producers(client, sorted(asked)) if asked else Answers[NamedPartition, tuple[Producer, ...]]()
    answered = {**dict.fromkeys(again.gone, ()), **again.found}  # What was open on a deleted topic has ended.
    still_open = without(producers, settled(suspects, answered, txns))
    return Look(
        now_ms=now_ms(),
        ends={where: _now(ends, still_open.get(where)) for where, ends in seen.ends.found.items()},
        producers=still_open,
        denied=frozenset(seen.producers.denied),
        txns=txns,
        unconfirmed=asked - answered.keys(),
        unanswered_coordinators=unanswered,
        problems=(*seen.ends.problems, *seen.producers.problems, *_of_those_left(again, asked).problems),
    )


def _now(ends: Ends, producers: tuple[Producer, ...] | None) -> Ends:
    """The ends of a partition; what its readers waited for may have ended before its producers were asked for."""
    if ends.gap == 0 or producers is None or first_open(producers) is not None:
        return ends
    return replace(ends, last_stable_offset=ends.high_watermark)


def hidden_topics(client: KafkaClient) -> list[str]:
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


def ends_of(client: KafkaClient, partitions: Collection[NamedPartition]) -> Answers[NamedPartition, Ends]:
    """The ends of some partitions; partitions that do not answer are left out."""
    high = list_offsets(client, partitions, READ_UNCOMMITTED)
    stable = list_offsets(client, list(high.found), READ_COMMITTED)
    found = {
        where: Ends(high_watermark=max(high.found[where], offset), last_stable_offset=offset)
        for where, offset in stable.found.items()
    }
    return Answers(found, [*high.problems, *stable.problems], gone=high.gone | stable.gone)


def unasked_coordinators(before: Sequence[int], after: Sequence[int]) -> list[str]:
    """Which partitions of `__transaction_state` did not answer, given the leader of each; -1: it has no leader."""
    leaders = list(enumerate(zip_longest(before, after, fillvalue=-1)))
    unled = [NamedPartition(TXN_TOPIC, i) for i, (was, is_) in leaders if was < 0 or is_ < 0]
    moved = [NamedPartition(TXN_TOPIC, i) for i, (was, is_) in leaders if was >= 0 and is_ >= 0 and was != is_]
    problems = []
    if unled:
        problems.append(f"no broker leads {listed(unled)}, so the transactions there are not known")
    if moved:
        problems.append(f"{listed(moved)} moved to another broker meanwhile, so the transactions there are not known")
    return problems


def answered_by_another(txn: DescribedTxn, before: Sequence[int], after: Sequence[int]) -> str | None:
    """Why the answer of a broker about an id cannot be trusted; None if it was the coordinator all the time.

    A broker that does not know yet that another broker replaced it still answers, with outdated information.
    """
    if not before or not after:
        return None  # The client is not allowed to see the leaders.
    where = NamedPartition(TXN_TOPIC, partition_for(txn.transactional_id, len(after)))
    seen = {leaders[where.partition] for leaders in (before, after) if where.partition < len(leaders)}
    if seen == {txn.coordinator}:
        return None
    return f"broker {txn.coordinator} answered for `{txn.transactional_id}`, but does not lead {where}"
