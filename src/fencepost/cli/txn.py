"""`fencepost txn`: which transactions there are, who keeps readers waiting and why, and how to end it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from fencepost.cli.errors import Failure, WrongUse
from fencepost.cli.groups import HelpfulGroup
from fencepost.cli.options import ClusterOptions, Duration, Unanswered, as_json_option, cluster_options, watch_options

if TYPE_CHECKING:
    from fencepost.cli.output import Block
    from fencepost.client.client import KafkaClient
    from fencepost.diagnose.hanging import HangingTxn

D = TypeVar("D")
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence")
yes_option = click.option("--yes", is_flag=True, help="Do not ask first.")


@click.group(cls=HelpfulGroup)
def txn() -> None:
    """Explain the transactions of any Kafka cluster

    Works on Fencepost and on Apache Kafka. Exit codes: 0 all is well, 1 something was found that should not be, or
    an order was refused, 2 called wrongly, 3 the cluster could not be asked.

    \b
    Example:
        export FENCEPOST_BOOTSTRAP=localhost:9092
        fencepost txn lso
        fencepost txn explain orders-sink-3
    """


@txn.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    help="Only in this state. Repeatable.",
)
@click.option(
    "--producer-id",
    "producer_ids",
    metavar="N",
    multiple=True,
    type=click.IntRange(0, 2**63 - 1),
    help="Only of this producer. Repeatable.",
)
@click.option(
    "--longer-than", "longer_than_ms", type=Duration(), metavar="DURATION", help="Only transactions open for longer."
)
@click.option("--id", "pattern", metavar="PATTERN", help="Only ids that match this regular expression as a whole.")
@click.option(
    "--idle",
    "idle_ms",
    type=Duration(),
    metavar="DURATION",
    help="Only ids without an open transaction that nobody used for so long. Reads all of __transaction_state.",
)
@watch_options
@cluster_options
@as_json_option
def list_(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than_ms: int | None,
    pattern: str | None,
    idle_ms: int | None,
    every_ms: int | None,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """List the transactional ids of the cluster

    Open transactions come first, the oldest at the top.

    \b
    Example:
        fencepost txn list --bootstrap localhost:9092
        fencepost txn list --state Ongoing --longer-than 30s
        fencepost txn list --id 'orders-.*' --idle 7d --json
    """
    from fencepost.cli import txn_text
    from fencepost.cli.progress import patient_bar
    from fencepost.diagnose.collect import collect_txns
    from fencepost.diagnose.txns import Filters, TxnList, diagnose_txns

    filters = Filters(longer_than_ms=longer_than_ms, idle_ms=idle_ms, id_pattern=_regular_expression(pattern))
    with cluster.connect() as client:

        def look() -> TxnList:
            with patient_bar("reading __transaction_state") as progress:
                snapshot = collect_txns(client, states, producer_ids, idle_ms is not None, progress)
            return diagnose_txns(snapshot, filters)

        found = _show(look, txn_text.txns, as_json, every_ms)
    if found is None:
        return
    _require_answers(found.problems)
    if not found.transactions:
        print(f"none of {found.total} transactional ids{_meant(pattern)}", file=sys.stderr)


def _regular_expression(pattern: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern) if pattern is not None else None
    except re.error as e:
        raise WrongUse(f"--id {pattern} is not a regular expression: {e}", "for example --id 'orders-.*'") from None


def _meant(pattern: str | None) -> str:
    """`orders-*` is what a shell would understand."""
    if pattern is None or "*" not in pattern or ".*" in pattern:
        return ""
    return f"; --id takes a regular expression: did you mean {pattern.replace('*', '.*')}?"


@txn.command()
@click.argument("transactional_id", metavar="ID")
@watch_options
@cluster_options
@as_json_option
def describe(transactional_id: str, every_ms: int | None, cluster: ClusterOptions, as_json: bool) -> None:
    """Show every field of one transaction

    What its coordinator knows of it, its last record in __transaction_state, and the partitions it is open on.

    \b
    Example:
        fencepost txn describe orders-sink-3 --bootstrap localhost:9092
    """
    from fencepost.cli import txn_text
    from fencepost.cli.progress import patient_bar
    from fencepost.diagnose.collect import ENTRIES_FOR_THE_LATEST, collect_txn
    from fencepost.diagnose.txns import TxnDescription, diagnose_description

    with cluster.connect() as client:

        def look() -> TxnDescription:
            with patient_bar("reading __transaction_state") as progress:
                snapshot = collect_txn(client, transactional_id, ENTRIES_FOR_THE_LATEST, progress)
            document = diagnose_description(snapshot)
            if document is None:
                raise _unknown_id(transactional_id, snapshot.similar)
            return document

        _show(look, txn_text.description, as_json, every_ms)


@txn.command()
@click.argument("transactional_id", metavar="ID")
@click.option("--rpc", "with_rpcs", is_flag=True, help="Also its last requests, with who sent them. On Fencepost only.")
@cluster_options
@as_json_option
def history(transactional_id: str, with_rpcs: bool, cluster: ClusterOptions, as_json: bool) -> None:
    """Show what happened to a transactional id, step by step

    Reads its records in __transaction_state, oldest first, and says of each who asked for it. Kafka keeps at least the
    last one; how many more depends on compaction.

    \b
    Example:
        fencepost txn history orders-sink-3 --bootstrap localhost:9092
        fencepost txn history orders-sink-3 --rpc
    """
    from fencepost.cli import txn_text
    from fencepost.cli.progress import patient_bar
    from fencepost.diagnose.collect import collect_history
    from fencepost.diagnose.history import diagnose_history

    with cluster.connect() as client, patient_bar("reading __transaction_state") as progress:
        document = diagnose_history(collect_history(client, transactional_id, with_rpcs, progress))
    if not document.transitions:
        raise _unknown_id(transactional_id)
    if with_rpcs and document.rpcs is None:
        raise Failure("the brokers of this cluster do not remember requests: Fencepost's do", "leave out --rpc")
    _write(document, txn_text.history, as_json)


@txn.command()
@click.argument("place", metavar="TOPIC[:PARTITION]")
@cluster_options
@as_json_option
def producers(place: str, cluster: ClusterOptions, as_json: bool) -> None:
    """Show the producers that a topic's partitions remember

    With the open transaction of each, if there is one, and the transactional id that it belongs to.

    \b
    Example:
        fencepost txn producers orders --bootstrap localhost:9092
        fencepost txn producers orders:2
    """
    from fencepost.cli import txn_text
    from fencepost.diagnose.collect import collect_producers
    from fencepost.diagnose.hanging import diagnose_producers

    topic, partition = _parse_place(place)
    with cluster.connect() as client:
        document = diagnose_producers(collect_producers(client, topic, partition))
    _write(document, txn_text.producers, as_json)
    _require_answers(document.problems)


def _parse_place(place: str) -> tuple[str, int | None]:
    topic, colon, partition = place.partition(":")
    if not topic or (colon and not (partition.isascii() and partition.isdigit() and len(partition) < 11)):
        raise WrongUse(f"{place} is not a partition", "write TOPIC or TOPIC:PARTITION, for example orders:2")
    return topic, int(partition) if colon else None


@txn.command()
@click.argument("topic", required=False)
@click.option(
    "--max-age",
    "max_age_ms",
    type=Duration(),
    metavar="DURATION",
    help="Exit with 1 if readers wait for a transaction that is older than this. For monitoring.",
)
@click.option("--all", "shows_all", is_flag=True, help="Show partitions where nobody waits, too.")
@watch_options
@cluster_options
@as_json_option
def lso(
    topic: str | None,
    max_age_ms: int | None,
    shows_all: bool,
    every_ms: int | None,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Show who keeps read_committed readers waiting

    Each partition whose last stable offset is behind its high watermark, with the transaction that pins it there.
    With TOPIC, all partitions of that topic.

    \b
    Example:
        fencepost txn lso --bootstrap localhost:9092
        fencepost txn lso orders --watch
        fencepost txn lso --max-age 60s || page-somebody
    """
    from fencepost.cli import txn_text
    from fencepost.diagnose.collect import collect_lso
    from fencepost.diagnose.lso import diagnose_lso
    from fencepost.diagnose.words import counted, duration

    with cluster.connect() as client:
        found = _show(
            lambda: diagnose_lso(
                collect_lso(client, None if topic is None else [topic]), max_age_ms, shows_all or topic is not None
            ),
            txn_text.lso,
            as_json,
            every_ms,
        )
    if found is None:
        return
    if found.late:
        oldest, limit_ms = found.late[0], found.max_age_ms or 0
        id_ = oldest.transactional_id
        name = f"`{id_}`" if id_ is not None else f"producer {oldest.producer_id}"
        raise Failure(
            f"readers wait for {name} for {duration(oldest.age_ms or 0)}, more than {duration(limit_ms)}",
            f"`fencepost txn explain {id_}` says why"
            if id_ is not None and not oldest.is_orphan
            else "see `fencepost txn hanging`",
        )
    _require_answers(found.problems)
    if not found.waiting_count:
        print(f"nobody waits on any of {counted(found.partition_count, 'partition')}", file=sys.stderr)


@txn.command()
@click.argument("topic", required=False)
@cluster_options
@as_json_option
def hanging(topic: str | None, cluster: ClusterOptions, as_json: bool) -> None:
    """Find transactions that nobody will ever end

    Looks on all partitions of the cluster, or of TOPIC, for transactions that are open there and unknown to their
    coordinator. They hold back readers for ever. Exit code 1 if there is one.

    \b
    Example:
        fencepost txn hanging --bootstrap localhost:9092
    """
    from fencepost.cli import txn_text
    from fencepost.diagnose.collect import collect_hanging
    from fencepost.diagnose.hanging import diagnose_hanging
    from fencepost.diagnose.words import counted

    with cluster.connect() as client:
        document = diagnose_hanging(collect_hanging(client, None if topic is None else [topic]))
    _write(document, txn_text.hanging, as_json)
    open_ = counted(document.open_count, "open transaction")
    looked_at = f"{counted(document.partition_count, 'partition')}, {open_} with a coordinator"
    if document.hanging:
        raise Failure(f"{counted(len(document.hanging), 'transaction')} will never end", "abort them as shown above")
    if document.undecided_count or document.problems:
        raise Unanswered(f"not everybody could be asked ({looked_at})", "the warnings above say who")
    print(f"none hangs: {looked_at}", file=sys.stderr)


@txn.command()
@click.argument("transactional_id", metavar="ID")
@cluster_options
@as_json_option
def explain(transactional_id: str, cluster: ClusterOptions, as_json: bool) -> None:
    """Say why a transaction is not finished, and what to do about it

    \b
    Example:
        fencepost txn explain orders-sink-3 --bootstrap localhost:9092
    """
    from fencepost.cli import txn_text
    from fencepost.cli.progress import patient_bar
    from fencepost.diagnose.collect import collect_txn
    from fencepost.diagnose.explain import diagnose_txn

    with cluster.connect() as client, patient_bar("reading __transaction_state") as progress:
        document = diagnose_txn(collect_txn(client, transactional_id, progress=progress))
    _write(document, txn_text.explanation, as_json)
    if document.state is None:
        raise Failure(f"no coordinator knows `{transactional_id}`", "`fencepost txn list` shows all ids")


@txn.command()
@click.argument("transactional_id", metavar="ID")
@yes_option
@cluster_options
@as_json_option
def fence(transactional_id: str, yes: bool, cluster: ClusterOptions, as_json: bool) -> None:
    """Shut a producer out, and abort what it left open

    Registers the transactional id once more, as a new producer would. The open transaction is aborted, readers that
    waited for it go on, and the producer that had the id is refused from then on (PRODUCER_FENCED).

    \b
    Example:
        fencepost txn fence orders-sink-3 --bootstrap localhost:9092
        fencepost txn fence orders-sink-3 --yes --json
    """
    _fence(transactional_id, yes, cluster, as_json, must_be_open=False)


def _fence(transactional_id: str, yes: bool, cluster: ClusterOptions, as_json: bool, must_be_open: bool) -> None:
    from fencepost.cli import txn_text
    from fencepost.client.admin import describe_transaction
    from fencepost.diagnose.orders import order_fence
    from fencepost.diagnose.snapshot import is_open

    with cluster.connect() as client:
        _, found = describe_transaction(client, transactional_id)
        # For an id that does not exist, the order below would make one.
        if found is None:
            raise _unknown_id(transactional_id)
        if must_be_open and not is_open(found.state):
            raise Failure(
                f"`{transactional_id}` has no open transaction: it is {found.state}",
                f"to shut its producer out all the same: `fencepost txn fence {transactional_id}`",
            )
        if is_open(found.state) and found.state != "Ongoing":
            raise Failure(
                f"the transaction of `{transactional_id}` is decided already ({found.state}), and nothing changes that",
                f"`fencepost txn explain {transactional_id}` says what it waits for",
            )
        aborts = "aborts its open transaction and " if is_open(found.state) else ""
        producer = f"producer {found.producer_id} (epoch {found.producer_epoch})"
        _confirm(f"This {aborts}fences {producer} of `{transactional_id}`.", yes)
        document = order_fence(client, found)
    _write(document, txn_text.ended, as_json)


@txn.command()
@click.argument("transactional_id", metavar="[ID]", required=False)
@click.option("--topic", metavar="TOPIC", help="A partition with a hanging transaction: its topic ...")
@click.option("--partition", metavar="N", type=click.IntRange(0), help="... and its number.")
@click.option("--producer-id", metavar="N", type=int, help="Only the transaction of this producer.")
@click.option("--start-offset", metavar="N", type=int, help="Only the transaction that begins at this offset.")
@yes_option
@cluster_options
@as_json_option
def abort(
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    producer_id: int | None,
    start_offset: int | None,
    yes: bool,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Abort a transaction

    With ID, the open transaction of that id; its producer is fenced. With --topic and --partition, a transaction that
    hangs there, by writing the marker that its coordinator will never write. A transaction that has a coordinator is
    refused the second way: that would tear it apart.

    \b
    Example:
        fencepost txn abort orders-sink-3 --bootstrap localhost:9092
        fencepost txn abort --topic orders --partition 0 --producer-id 4711
    """
    names_partition = topic is not None and partition is not None
    if (transactional_id is None) is not names_partition or (topic is None) is not (partition is None):
        raise WrongUse("which transaction?", "give an ID, or --topic and --partition of one that hangs")
    if transactional_id is not None:
        if producer_id is not None or start_offset is not None:
            raise WrongUse("an ID has one transaction", "leave out --producer-id and --start-offset")
        _fence(transactional_id, yes, cluster, as_json, must_be_open=True)
        return
    assert topic is not None
    assert partition is not None
    from fencepost.cli import txn_text
    from fencepost.diagnose.orders import order_abort

    with cluster.connect() as client:
        found = _hanging_on(client, topic, partition, producer_id, start_offset)
        what = ", ".join(f"producer {h.producer_id} from offset {h.start_offset} ({h.why})" for h in found)
        _confirm(f"This writes an abort marker on {topic}-{partition} for {what}.", yes)
        document = order_abort(client, found)
    _write(document, txn_text.ended, as_json)


def _hanging_on(
    client: KafkaClient, topic: str, partition: int, producer_id: int | None, start_offset: int | None
) -> list[HangingTxn]:
    """What hangs on a partition; refuses where nothing does, and says what is there instead."""
    from fencepost.client.admin import Where
    from fencepost.diagnose.collect import collect_hanging
    from fencepost.diagnose.hanging import diagnose_hanging

    def is_meant(producer: int, offset: int) -> bool:
        return producer_id in (None, producer) and start_offset in (None, offset)

    where = Where(topic, partition)
    snapshot = collect_hanging(client, [topic])
    report = diagnose_hanging(snapshot)
    found = [h for h in report.hanging if h.where == where and is_meant(h.producer_id, h.start_offset)]
    if found:
        return found
    if report.undecided_count or report.problems:
        raise Unanswered(f"whether one hangs on {where} is not known: {report.problems[0]}", "try again later")
    for producer in snapshot.before.get(where, ()):
        owner = snapshot.txns.get(producer.producer_id)
        if producer.txn_start_offset >= 0 and owner and is_meant(producer.producer_id, producer.txn_start_offset):
            raise Failure(
                f"the transaction of producer {producer.producer_id} on {where} does not hang: "
                f"`{owner.transactional_id}` is {owner.state}",
                f"`fencepost txn fence {owner.transactional_id}` aborts it on all its partitions",
            )
    raise Failure(f"no such transaction hangs on {where}", "`fencepost txn hanging` shows those that do")


# --- what they share --------------------------------------------------------------------------------------


def _show(
    look: Callable[[], D], blocks: Callable[[D], Iterable[Block]], as_json: bool, every_ms: int | None
) -> D | None:
    """Write what there is to see and return it; or go on writing it, and return nothing."""
    from fencepost.cli.output import watch, write

    if every_ms is not None:
        watch(look, blocks, as_json, every_ms)
        return None
    document = look()
    write(document, blocks, as_json)
    return document


def _write(document: D, blocks: Callable[[D], Iterable[Block]], as_json: bool) -> None:
    from fencepost.cli.output import write

    write(document, blocks, as_json)


def _require_answers(problems: Sequence[str]) -> None:
    """What is shown is what could be found out; if that is not all, nobody may take it for an all-clear."""
    if problems:
        raise Unanswered("not everybody could be asked", "the warnings above say who")


def _confirm(what: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise WrongUse(what, "nobody is there to be asked: add --yes if that is what you want")
    print(what, file=sys.stderr)
    if not click.confirm("Go on?", err=True):
        raise Failure("not done", "nothing was changed")


def _unknown_id(transactional_id: str, similar: Iterable[str] = ()) -> Failure:
    near = next(iter(similar), None)
    hint = f"did you mean {near}?" if near is not None else "`fencepost txn list` shows all ids"
    return Failure(f"no coordinator knows `{transactional_id}`", hint)
