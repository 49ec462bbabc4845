"""Asks about topics and their partitions: how far readers get, who wrote there, which transactions are open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fencepost.client.admin.answers import Answers, ListedTxn, NamedPartition, Producer
from fencepost.client.admin.configs import ShownConfig, describe_topic_configs
from fencepost.client.admin.groups import GroupOffsets
from fencepost.client.admin.partitions import EARLIEST, describe_producers, list_offsets, partitions_of
from fencepost.client.admin.topics import describe_layouts
from fencepost.client.admin.transactions import describe_rpcs, list_transactions
from fencepost.client.client import KafkaClient
from fencepost.client.failures import BrokerError, ClientError
from fencepost.client.fetching import read_batches
from fencepost.counting import counted
from fencepost.diagnose.collect.affected import offsets_on
from fencepost.diagnose.collect.look import ends_of, hidden_topics, judge, now_ms, see
from fencepost.diagnose.snapshot import Look, ProducersSnapshot, first_open, is_coordinated
from fencepost.diagnose.topics import TopicSnapshot
from fencepost.protocol import errors
from fencepost.spelling import similar_to


def collect_lso(
    client: KafkaClient, topics: Iterable[str] | None = None, with_groups: bool = True, partition: int | None = None
) -> Look:
    """How far readers get in each partition, the transactions that readers wait for, and the groups that wait."""
    return waits_of(client, collect_hanging(client, topics, partition), with_groups)


def collect_hanging(client: KafkaClient, topics: Iterable[str] | None = None, partition: int | None = None) -> Look:
    """How far readers get in each partition, and the transactions that they wait for."""
    hidden = hidden_topics(client) if topics is None else []
    places = _places(client, topics, partition)
    look = judge(client, see(client, places, listed=frozenset(places if topics is None else ())))
    return replace(look, problems=(*hidden, *look.problems))


def waits_of(client: KafkaClient, look: Look, with_groups: bool = True) -> Look:
    """The look, with what there is to know about the transactions that readers wait for."""
    pins = {where: pin for where, found in look.producers.items() if (pin := first_open(found)) is not None}
    groups = offsets_on(client, pins) if with_groups else Answers[str, GroupOffsets]()
    ids = {txn.transactional_id for txn in look.txns.values()}
    return replace(
        look,
        first_record_ms={
            where: _first_record_ms(client, where, pin)
            for where, pin in pins.items()
            if not is_coordinated(look.txns.get(pin.producer_id), where)
        },
        rpcs=describe_rpcs(client, ids) or {} if ids else {},
        groups=groups.found,
        warnings=tuple(groups.problems),
    )


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


def collect_topic(client: KafkaClient, topic: str) -> TopicSnapshot | None:
    """One topic; None if it does not exist."""
    layout = describe_layouts(client, [topic]).get(topic)
    if layout is None:
        return None
    partitions = [NamedPartition(topic, p.partition) for p in layout.partitions]
    starts = list_offsets(client, partitions, timestamp=EARLIEST)
    ends = ends_of(client, list(starts.found))
    configs: tuple[ShownConfig, ...] = ()
    problems = [*starts.problems, *ends.problems]
    try:
        configs = describe_topic_configs(client, topic)
    except ClientError as e:  # This question needs a permission of its own.
        problems.append(f"the settings of {topic} are unknown: {e}")
    return TopicSnapshot(
        layout=layout, log_starts=starts.found, ends=ends.found, configs=configs, problems=tuple(problems)
    )


def collect_similar(client: KafkaClient, topic: str) -> tuple[str, ...]:
    """Names of topics that look like one that does not exist."""
    return similar_to(topic, describe_layouts(client))
