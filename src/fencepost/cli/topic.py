"""`fencepost topic`: create, list, describe and delete the topics of any Kafka cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import click

from fencepost.cli.groups import HelpfulGroup
from fencepost.cli.options import ClusterOptions, as_json_option, cluster_options, failure_of
from fencepost.cli.streams import Failure, WrongUse, confirm, say

if TYPE_CHECKING:
    from fencepost.cli.output import Block
    from fencepost.client.client import KafkaClient
    from fencepost.client.failures import BrokerError
    from fencepost.diagnose.topics import TopicChange, TopicChanges, TopicDescription, TopicList

MOST_PARTITIONS = 2**31 - 1  # In a request. Clusters allow fewer.


@click.group(cls=HelpfulGroup)
def topic() -> None:
    """Create, list, describe and delete topics of any Kafka cluster

    \b
    Example:
        fencepost topic create orders --partitions 3 --bootstrap localhost:9092
        fencepost topic describe orders
    """


@topic.command()
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option(
    "--partitions",
    type=click.IntRange(1, MOST_PARTITIONS),
    metavar="N",
    help="How many. Default: num.partitions of the cluster.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 32_767),
    metavar="N",
    help="Copies of each partition. Default: default.replication.factor of the cluster.",
)
@click.option("--config", "configs", metavar="NAME=VALUE", multiple=True, help="One setting of the topic. Repeatable.")
@click.option("--if-not-exists", is_flag=True, help="Accept a topic that exists already, as it is.")
@cluster_options
@as_json_option
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Create topics

    Returns when every partition has a leader, so that clients can use the topic at once.

    \b
    Example:
        fencepost topic create orders --partitions 3 --bootstrap localhost:9092
        fencepost topic create users --config cleanup.policy=compact --if-not-exists
    """
    from fencepost.client.admin.topics import CLUSTER_DEFAULT, create_topic, describe_layouts
    from fencepost.client.failures import BrokerError
    from fencepost.diagnose.topics import TopicChange, TopicChanges, change_of_existing, differences
    from fencepost.protocol import errors

    wanted = _parse_configs(configs)
    with cluster.connect() as client:

        def make(name: str) -> TopicChange:
            try:
                made = create_topic(
                    client, name, partitions or CLUSTER_DEFAULT, replication_factor or CLUSTER_DEFAULT, wanted
                )
            except BrokerError as e:
                if e.code != errors.TOPIC_ALREADY_EXISTS or not if_not_exists:
                    raise
                return change_of_existing(name, describe_layouts(client, [name]).get(name))
            return TopicChange(
                topic=name,
                result="created",
                partition_count=made.partition_count if made.partition_count > 0 else None,
                replication_factor=made.replication_factor if made.replication_factor > 0 else None,
            )

        changes, failure = _order_each(cluster, client, dict.fromkeys(names), make)
    warnings = differences(changes, partitions, replication_factor)
    _write_changes(TopicChanges(topics=changes, warnings=warnings), failure, as_json)


def _order_each(
    cluster: ClusterOptions, client: KafkaClient, names: Iterable[str], order: Callable[[str], TopicChange]
) -> tuple[tuple[TopicChange, ...], Failure | None]:
    """Order a change of each topic: what became of it, and the first failure. A refusal does not stop the others."""
    from fencepost.client.failures import BrokerError, ClientError
    from fencepost.diagnose.topics import TopicChange

    changes: list[TopicChange] = []
    failures: list[Failure] = []
    for name in names:
        try:
            changes.append(order(name))
        except BrokerError as e:
            changes.append(TopicChange(topic=name, result="refused", problem=str(e)))
            failures.append(_refusal(e, name, cluster, client))
        except ClientError as e:
            # The cluster does not answer, and would not answer for the next topic either.
            failures.append(failure_of(e))
            break
    return tuple(changes), failures[0] if failures else None


def _write_changes(document: TopicChanges, failure: Failure | None, as_json: bool) -> None:
    from fencepost.cli.output import write

    if failure is None or any(change.result != "refused" for change in document.topics):
        write(document, _changes, as_json)
    if failure is not None:
        raise failure


def _parse_configs(configs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in configs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise WrongUse(
                f"--config {pair} is not a setting", "write name=value, for example --config cleanup.policy=compact"
            )
        found[name.strip()] = value.strip()
    return found


@topic.command("list")
@click.option("--internal", is_flag=True, help="Also show internal topics, such as __transaction_state.")
@cluster_options
@as_json_option
def list_(internal: bool, cluster: ClusterOptions, as_json: bool) -> None:
    """List topics

    \b
    Example:
        fencepost topic list --bootstrap localhost:9092
        fencepost topic list --internal --json
    """
    from fencepost.cli.output import write
    from fencepost.client.admin.topics import describe_layouts
    from fencepost.diagnose.topics import diagnose_topics

    with cluster.connect() as client:
        document = diagnose_topics(describe_layouts(client).values(), internal)
    write(document, _list, as_json)
    if not document.topics and not document.hidden_count:
        say("no topics")
    elif not document.topics:
        say(f"{document.hidden_count} internal topics are hidden: --internal shows them")


@topic.command()
@click.argument("name", metavar="TOPIC")
@click.option("--all-settings", is_flag=True, help="Also show the settings that the topic takes from the brokers.")
@cluster_options
@as_json_option
def describe(name: str, all_settings: bool, cluster: ClusterOptions, as_json: bool) -> None:
    """Show the partitions and the settings of a topic

    Shows for each partition its leader, its copies, and its offsets: the start of the log, the last stable offset
    (the limit of read_committed readers), and the high watermark (the limit of all other readers).

    \b
    Example:
        fencepost topic describe orders --bootstrap localhost:9092
        fencepost topic describe __transaction_state --all-settings
    """
    from fencepost.cli.output import write
    from fencepost.cli.txn.showing import require_answers
    from fencepost.diagnose.collect.partitions import collect_topic
    from fencepost.diagnose.topics import diagnose_topic

    with cluster.connect() as client:
        snapshot = collect_topic(client, name)
        if snapshot is None:
            raise unknown_topic(cluster, client, name)
    document = diagnose_topic(snapshot, all_settings)
    write(document, _description, as_json)
    require_answers(document.problems)


@topic.command()
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="Accept a topic that does not exist.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@cluster_options
@as_json_option
def delete(names: tuple[str, ...], if_exists: bool, yes: bool, cluster: ClusterOptions, as_json: bool) -> None:
    """Delete topics and all their records

    \b
    Example:
        fencepost topic delete orders --bootstrap localhost:9092
        fencepost topic delete orders payments --if-exists --yes
    """
    from fencepost.client.admin.topics import delete_topic, describe_layouts
    from fencepost.counting import counted
    from fencepost.diagnose.topics import TopicChange, TopicChanges
    from fencepost.diagnose.words import listed

    wanted = list(dict.fromkeys(names))
    with cluster.connect() as client:
        there = describe_layouts(client, wanted)
        missing = [name for name in wanted if name not in there]
        if missing and not if_exists:
            raise unknown_topic(cluster, client, missing[0])
        partition_count = sum(len(layout.partitions) for layout in there.values())
        if there:
            what = f"This deletes {listed(there)} ({counted(partition_count, 'partition')}) and all records in them."
            confirm(what, yes)

        def remove(name: str) -> TopicChange:
            if name not in there:
                return TopicChange(topic=name, result="missing")
            delete_topic(client, name)
            return TopicChange(topic=name, result="deleted")

        changes, failure = _order_each(cluster, client, wanted, remove)
    _write_changes(TopicChanges(topics=changes), failure, as_json)


def unknown_topic(cluster: ClusterOptions, client: KafkaClient, name: str) -> Failure:
    from fencepost.diagnose.collect.partitions import collect_similar

    near = next(iter(collect_similar(client, name)), None)
    every = f"`{cluster.command('topic', 'list')}` lists the topics"
    return Failure(f"topic {name} does not exist", f"did you mean {near}?" if near is not None else every)


def _refusal(error: BrokerError, name: str, cluster: ClusterOptions, client: KafkaClient) -> Failure:
    """The failure of the command, with a hint for the usual mistakes."""
    from fencepost.counting import counted
    from fencepost.protocol import errors

    hints = {
        errors.TOPIC_ALREADY_EXISTS: f"`{cluster.command('topic', 'describe', about=name)}` shows it; "
        "--if-not-exists accepts it",
        errors.INVALID_TOPIC_EXCEPTION: "a name has 1 to 249 letters, digits, dots, hyphens and underscores; "
        "a dot and an underscore count as the same",
        errors.INVALID_PARTITIONS: "--partitions is at least 1, and the cluster may have a limit",
        errors.INVALID_CONFIG: f"`{cluster.command('topic', 'describe', 'TOPIC', '--all-settings')}` shows the "
        "settings of a topic",
        errors.POLICY_VIOLATION: "a policy of the cluster forbids it: its operators know more. "
        "Without any, a request may create 10000 partitions",
        errors.TOPIC_AUTHORIZATION_FAILED: "this user may not do this: it needs CREATE or DELETE on the topic",
        errors.CLUSTER_AUTHORIZATION_FAILED: "this user may not do this: it needs CREATE on the cluster",
        errors.TOPIC_DELETION_DISABLED: "the brokers have delete.topic.enable=false",
    }
    if error.code == errors.INVALID_REPLICATION_FACTOR:
        hint = f"the cluster has {counted(len(client.brokers()), 'broker')}, and each copy needs one of its own"
    else:
        hint = hints.get(error.code, f"`fencepost error {error.code}` explains this error")
    return Failure(str(error), hint)


# --- text -------------------------------------------------------------------------------------------------


def _changes(document: TopicChanges) -> Iterator[Block]:
    from fencepost.cli.output import Paragraph
    from fencepost.counting import counted

    lines = []
    for change in document.topics:
        line = f"{change.topic}: {change.result}"
        if change.result == "exists":
            line = f"{change.topic}: exists already, unchanged"
        elif change.result == "missing":
            line = f"{change.topic}: does not exist"
        elif change.result == "refused":
            line = f"{change.topic}: refused: {change.problem}"
        elif change.partition_count is not None:
            line += f" with {counted(change.partition_count, 'partition')}"
            if change.replication_factor is not None:
                line += f", replication factor {change.replication_factor}"
        lines.append(line)
    yield Paragraph("\n".join(lines))


def _list(document: TopicList) -> Iterator[Block]:
    from fencepost.cli.output import Table

    ails = any(row.leaderless_count or row.under_replicated_count for row in document.topics)
    yield Table(
        ("TOPIC", "PARTITIONS", "REPLICATION", *(("LEADERLESS", "UNDER-REPLICATED") if ails else ())),
        [
            (
                *(row.topic, row.partition_count, row.replication_factor),
                *((row.leaderless_count, row.under_replicated_count) if ails else ()),
            )
            for row in document.topics
        ],
    )


def _description(document: TopicDescription) -> Iterator[Block]:
    from fencepost.cli.output import Fields, Table

    own = [setting for setting in document.settings if setting.is_own]
    others = [setting for setting in document.settings if not setting.is_own]
    yield Fields(
        [
            ("topic", document.topic + (" (internal)" if document.is_internal else "")),
            ("topic id", document.topic_id),
            ("replication factor", document.replication_factor),
            ("own settings", "\n".join(f"{s.name}={s.value}" for s in own) or None),
            *([("other settings", "\n".join(f"{s.name}={s.value}" for s in others))] if others else []),
        ]
    )
    yield Table(
        ("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "LOG START", "LAST STABLE OFFSET", "HIGH WATERMARK"),
        [
            (
                *(row.partition, row.leader),
                *(",".join(map(str, row.replicas)), ",".join(map(str, row.in_sync))),
                *(row.log_start_offset, row.last_stable_offset, row.high_watermark),
            )
            for row in document.partitions
        ],
    )
