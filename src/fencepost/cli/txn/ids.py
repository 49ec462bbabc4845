"""The commands about transactional ids: `list`, `describe`, `history` and `explain`."""

from __future__ import annotations

import re

import click

from fencepost.cli.options import ClusterOptions, Duration, as_json_option, cluster_options, watch_options
from fencepost.cli.streams import Failure, WrongUse, say
from fencepost.cli.txn.showing import maybe_hanging, require_answers, show, unknown_id, where_all_ids_are, write

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence")


@click.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    help="Only ids in this state. Repeatable.",
)
@click.option(
    "--producer-id",
    "producer_ids",
    metavar="N",
    multiple=True,
    type=click.IntRange(0, 2**63 - 1),
    help="Only the id of this producer. Repeatable.",
)
@click.option(
    "--longer-than", "longer_than_ms", type=Duration(), help="Only transactions that are open for longer than this."
)
@click.option(
    "--id", "pattern", metavar="PATTERN", help="Only ids that match this regular expression from beginning to end."
)
@click.option(
    "--idle",
    "idle_ms",
    type=Duration(),
    help="Only ids without an open transaction that were not used for this long. Reads all of __transaction_state.",
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

    Open transactions come first, the oldest at the top. The exit code is 1 if no id matches --id; it is 0 if the other
    filters leave nothing.

    \b
    Example:
        fencepost txn list --bootstrap localhost:9092
        fencepost txn list --state Ongoing --longer-than 30s
        fencepost txn list --id 'orders-.*' --idle 7d --json
    """
    from fencepost.cli.progress import patient_bar
    from fencepost.cli.txn import text
    from fencepost.client.admin.transactions import list_transactions
    from fencepost.counting import counted
    from fencepost.diagnose.collect.transactions import collect_txns
    from fencepost.diagnose.txns import Filters, TxnList, diagnose_txns

    filters = Filters(longer_than_ms=longer_than_ms, idle_ms=idle_ms, id_pattern=_regular_expression(pattern))
    with cluster.connect() as client:

        def look() -> TxnList:
            with patient_bar("reading __transaction_state") as progress:
                snapshot = collect_txns(client, states, producer_ids, idle_ms is not None, progress)
            return diagnose_txns(snapshot, filters)

        found = show(look, text.txns, as_json, every_ms)
        if found is None:
            return
        require_answers(found.problems)
        if found.transactions:
            return
        if filters.id_pattern is not None:
            # The cluster has left out ids in other states, and those of other producers.
            known = list_transactions(client)
            require_answers(known.problems)
            if not any(filters.id_pattern.fullmatch(id_) for id_ in known.found):
                raise Failure(
                    f"none of {counted(len(known.found), 'transactional id')} matches --id {pattern}",
                    _pattern_hint(pattern) or where_all_ids_are(cluster),
                )
    # Brokers leave out what ACLs hide from this user, and do not say so.
    say(
        f"none of {counted(found.total, 'transactional id')}"
        if found.total
        else "no transactional ids that this user can see"
    )


def _regular_expression(pattern: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern) if pattern is not None else None
    except re.error as e:
        raise WrongUse(f"--id {pattern} is not a regular expression: {e}", "for example --id 'orders-.*'") from None


def _pattern_hint(pattern: str | None) -> str:
    """A hint for a pattern such as `orders-*`, which only a shell understands as intended."""
    if pattern is None or "*" not in pattern or ".*" in pattern:
        return ""
    return f"--id takes a regular expression: did you mean {pattern.replace('*', '.*')}?"


@click.command()
@click.argument("transactional_id", metavar="ID")
@watch_options
@cluster_options
@as_json_option
def describe(transactional_id: str, every_ms: int | None, cluster: ClusterOptions, as_json: bool) -> None:
    """Show every field of one transaction

    Shows the answer of its coordinator, its last record in __transaction_state, and the partitions that it is open on.

    \b
    Example:
        fencepost txn describe orders-sink-3 --bootstrap localhost:9092
    """
    from fencepost.cli.progress import patient_bar
    from fencepost.cli.txn import text
    from fencepost.diagnose.collect.transactions import ENTRIES_FOR_THE_LATEST, collect_txn
    from fencepost.diagnose.txns import TxnDescription, diagnose_description

    with cluster.connect() as client:

        def look() -> TxnDescription:
            with patient_bar("reading __transaction_state") as progress:
                snapshot = collect_txn(client, transactional_id, ENTRIES_FOR_THE_LATEST, False, progress)
            document = diagnose_description(snapshot)
            if document is None:
                raise unknown_id(cluster, transactional_id, snapshot.similar)
            return document

        show(look, text.description, as_json, every_ms)


@click.command()
@click.argument("transactional_id", metavar="ID")
@click.option(
    "--rpc",
    "with_rpcs",
    is_flag=True,
    help="Also show its last requests and the clients that sent them. Only with Fencepost brokers.",
)
@click.option(
    "--last",
    metavar="N",
    type=click.IntRange(1),
    help="Only the last N records of the id, and with --rpc the last N requests. A commit takes several records.",
)
@cluster_options
@as_json_option
def history(transactional_id: str, with_rpcs: bool, last: int | None, cluster: ClusterOptions, as_json: bool) -> None:
    """Show the history of a transactional id, step by step

    Reads the records of the id in __transaction_state, oldest first, and explains the cause of each. Kafka keeps at
    least the last record; how many earlier ones are left depends on compaction.

    \b
    Example:
        fencepost txn history orders-sink-3 --bootstrap localhost:9092
        fencepost txn history orders-sink-3 --rpc
        fencepost txn history orders-sink-3 --last 10 --json
    """
    from fencepost.cli.progress import patient_bar
    from fencepost.cli.txn import text
    from fencepost.diagnose.collect.transactions import collect_history
    from fencepost.diagnose.history import diagnose_history

    with cluster.connect() as client, patient_bar("reading __transaction_state") as progress:
        document = diagnose_history(collect_history(client, transactional_id, with_rpcs, progress), last)
    if not document.transitions:
        raise unknown_id(cluster, transactional_id)
    if with_rpcs and document.rpcs is None:
        raise Failure("the brokers of this cluster do not remember requests; only Fencepost's do", "leave out --rpc")
    write(document, text.history, as_json)


@click.command()
@click.argument("transactional_id", metavar="ID")
@cluster_options
@as_json_option
def explain(transactional_id: str, cluster: ClusterOptions, as_json: bool) -> None:
    """Explain why a transaction is not finished, and what to do

    Says what happened, why, which readers and consumer groups wait, and what happens next. Searches every partition of
    the cluster for transactions of the id, because its coordinator does not know a transaction that hangs. The exit
    code is 1 if a transaction hangs that belongs or may belong to the id, or if no coordinator knows the id. A command
    that begins with kafka-configs is a tool of Kafka: bin/kafka-configs.sh in Apache's archive.

    With --json, `cause` is a code: hanging, hanging_nameless, duel, open, overdue, markers_under_way, markers_missing,
    committed, aborted, aborted_by_client, aborted_by_timeout, aborted_by_takeover, aborted_by_order,
    aborted_by_client_or_takeover, registered, fenced_by_order, expired or unknown_id. `deadline_ms` is when the
    coordinator aborts an open transaction.

    \b
    Example:
        fencepost txn explain orders-sink-3 --bootstrap localhost:9092
    """
    from fencepost.cli.progress import patient_bar
    from fencepost.cli.txn import text
    from fencepost.diagnose.collect.transactions import collect_txn
    from fencepost.diagnose.explain.explanation import diagnose_txn
    from fencepost.diagnose.words import listed
    from fencepost.printable import printable

    with cluster.connect() as client, patient_bar("reading __transaction_state") as progress:
        document = cluster.pasteable(diagnose_txn(collect_txn(client, transactional_id, progress=progress)))
    write(document, text.explanation, as_json)
    if document.hanging:
        places = listed(h.where for h in document.hanging)
        raise Failure(
            printable(f"a transaction of `{transactional_id}` hangs on {places}"), "end it with the commands above"
        )
    if document.state is None:
        raise unknown_id(cluster, transactional_id)
    if document.hanging_nameless:
        raise Failure(*maybe_hanging(cluster, document.hanging_nameless))
    require_answers(document.problems)
