"""The commands about partitions: `producers`, `lso` and `hanging`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fencepost.cli.options import ClusterOptions, Duration, Unanswered, as_json_option, cluster_options, watch_options
from fencepost.cli.streams import Failure, WrongUse, say
from fencepost.cli.txn.showing import require_answers, show, what_is_missing, write
from fencepost.counting import whole_number

if TYPE_CHECKING:
    from fencepost.diagnose.lso import Pin

MAX_PARTITION = 2**31 - 1


@click.command()
@click.argument("place", metavar="TOPIC[:PARTITION]")
@cluster_options
@as_json_option
def producers(place: str, cluster: ClusterOptions, as_json: bool) -> None:
    """Show the producers that a topic's partitions remember

    Shows for each producer its open transaction, if there is one, and its transactional id.

    \b
    Example:
        fencepost txn producers orders --bootstrap localhost:9092
        fencepost txn producers orders:2
    """
    from fencepost.cli.txn import text
    from fencepost.diagnose.collect.partitions import collect_producers
    from fencepost.diagnose.hanging import diagnose_producers

    topic, partition = parse_place(place)
    with cluster.connect() as client:
        document = diagnose_producers(collect_producers(client, topic, partition))
    write(document, text.producers, as_json)
    require_answers(document.problems)
    if not document.producers:
        say(f"no producers: {place} remembers none")


def parse_place(place: str) -> tuple[str, int | None]:
    topic, colon, partition = place.partition(":")
    number = whole_number(partition, MAX_PARTITION) if colon else None
    if not topic or (colon and number is None):
        raise WrongUse(f"{place} is not a partition", "write TOPIC or TOPIC:PARTITION, for example orders:2")
    return topic, number


def _wanted(place: str | None) -> tuple[list[str] | None, int | None]:
    """The topics to look at (None: all), and the partition."""
    if place is None:
        return None, None
    topic, partition = parse_place(place)
    return [topic], partition


@click.command()
@click.argument("place", metavar="[TOPIC[:PARTITION]]", required=False)
@click.option(
    "--max-age",
    "max_age_ms",
    type=Duration(),
    help="Exit with code 1 if readers wait for a transaction that is older than this; with --watch, as soon as they "
    "do. For monitoring.",
)
@click.option("--all", "shows_all", is_flag=True, help="Also show partitions where no reader waits.")
@watch_options
@cluster_options
@as_json_option
def lso(
    place: str | None,
    max_age_ms: int | None,
    shows_all: bool,
    every_ms: int | None,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Show the transactions that read_committed readers wait for

    Lists each partition whose last stable offset is behind its high watermark, with the transaction that pins it.
    With TOPIC, lists all partitions of that topic, with TOPIC:PARTITION that one.

    \b
    Example:
        fencepost txn lso --bootstrap localhost:9092
        fencepost txn lso orders --watch
        fencepost txn lso --max-age 60s || page-on-call
    """
    from fencepost.cli.txn import text
    from fencepost.counting import counted
    from fencepost.diagnose.collect.partitions import collect_lso
    from fencepost.diagnose.lso import diagnose_lso
    from fencepost.diagnose.words import duration

    topics, partition = _wanted(place)
    with cluster.connect() as client:
        found = show(
            lambda: cluster.pasteable(
                diagnose_lso(
                    collect_lso(client, topics, partition=partition), max_age_ms, shows_all or topics is not None
                )
            ),
            text.lso,
            as_json,
            every_ms,
            is_enough=lambda report: bool(report.late),
        )
    if found is None:
        return
    if found.late:
        oldest, limit_ms = found.late[0], found.max_age_ms or 0
        id_ = oldest.transactional_id
        name = f"`{id_}`" if id_ is not None else f"producer {oldest.producer_id}"
        raise Failure(
            f"readers wait for {name} for {duration(oldest.age_ms or 0)}, more than {duration(limit_ms)}",
            _what_next(cluster, oldest),
        )
    require_answers(found.problems)
    if not found.waiting_count:
        say(f"no reader waits on any of {counted(found.partition_count, 'partition')}")


def _what_next(cluster: ClusterOptions, pin: Pin) -> str:
    if pin.is_orphan:
        return "it hangs; this ends it: " + " && ".join(pin.commands)
    return f"`{pin.commands[0]}` explains it" if pin.commands else f"see `{cluster.command('txn', 'hanging')}`"


@click.command()
@click.argument("place", metavar="[TOPIC[:PARTITION]]", required=False)
@cluster_options
@as_json_option
def hanging(place: str | None, cluster: ClusterOptions, as_json: bool) -> None:
    """Find transactions that no coordinator will end

    Searches all partitions of the cluster, all of TOPIC, or one partition, for transactions that are open there but
    unknown to their coordinator. Readers wait for them for ever. The exit code is 1 if a transaction hangs.

    \b
    Example:
        fencepost txn hanging --bootstrap localhost:9092
    """
    from fencepost.cli.txn import text
    from fencepost.counting import counted
    from fencepost.diagnose.collect.partitions import collect_hanging
    from fencepost.diagnose.hanging import diagnose_hanging

    topics, partition = _wanted(place)
    with cluster.connect() as client:
        document = cluster.pasteable(diagnose_hanging(collect_hanging(client, topics, partition)))
    write(document, text.hanging, as_json)
    open_ = counted(document.open_count, "open transaction")
    looked_at = f"{counted(document.partition_count, 'partition')}, {open_} with a coordinator"
    if document.hanging:
        raise Failure(
            f"{counted(len(document.hanging), 'transaction')} will never end", "abort them with the commands above"
        )
    if document.undecided_count or document.problems:
        raise Unanswered(f"{what_is_missing(document.problems)} ({looked_at})", "the warnings above say which")
    say(f"no transaction hangs: {looked_at}")
