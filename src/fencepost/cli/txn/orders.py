"""The commands that change something: `fence` and `abort`. They ask for confirmation first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from fencepost.cli.options import ClusterOptions, Unanswered, as_json_option, cluster_options
from fencepost.cli.streams import Failure, WrongUse, confirm, say
from fencepost.cli.txn.showing import is_denied, maybe_hanging, unknown_id, write

if TYPE_CHECKING:
    from fencepost.client.client import KafkaClient
    from fencepost.diagnose.hanging import HangingTxn
    from fencepost.diagnose.snapshot import OpenTxn

TO_ABORT = (
    "READ on the topic, DESCRIBE on topic __transaction_state and on all transactional ids, and ALTER on the cluster "
    "(CLUSTER_ACTION before Kafka 3.8)"
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


@click.command()
@click.argument("transactional_id", metavar="ID")
@yes_option
@cluster_options
@as_json_option
def fence(transactional_id: str, yes: bool, cluster: ClusterOptions, as_json: bool) -> None:
    """Fence a producer, and abort its open transaction

    Registers the transactional id again, as a new producer would. This aborts the open transaction, so that readers
    continue, and from then on the brokers refuse the previous producer (PRODUCER_FENCED).

    This does not end a transaction that hangs: one that is open on a partition and that its coordinator does not know.
    If the id has or may have one, the exit code is 1, and the command that ends it is printed.

    \b
    Example:
        fencepost txn fence orders-sink-3 --bootstrap localhost:9092
        fencepost txn fence orders-sink-3 --yes --json
    """
    _fence(transactional_id, yes, cluster, as_json, must_be_open=False)


def _fence(transactional_id: str, yes: bool, cluster: ClusterOptions, as_json: bool, must_be_open: bool) -> None:
    from fencepost.cli.txn import text
    from fencepost.diagnose.collect.transactions import ENTRIES_FOR_THE_LATEST, collect_settled, collect_txn
    from fencepost.diagnose.hanging import hanging_of
    from fencepost.diagnose.orders import order_fence, what_fence_does, why_not_fence
    from fencepost.diagnose.snapshot import is_decided

    with cluster.connect() as client, _order("DESCRIBE and WRITE on the transactional id"):
        found = collect_settled(client, transactional_id)
        # InitProducerId creates an id that does not exist.
        if found is None:
            raise unknown_id(cluster, transactional_id)
        snapshot = collect_txn(client, transactional_id, ENTRIES_FOR_THE_LATEST)
        hanging = cluster.pasteable(hanging_of(snapshot))
        stuck = _stuck_anyway(cluster, hanging, snapshot.nameless)
        refusal = why_not_fence(found, must_be_open)
        if refusal is not None and is_decided(found.state):
            raise Failure(
                refusal, f"`{cluster.command('txn', 'explain', about=transactional_id)}` shows what it waits for"
            )
        if refusal is not None:
            anyway = f"to fence its producer anyway: `{cluster.command('txn', 'fence', about=transactional_id)}`"
            raise Failure(refusal, stuck[1] if stuck is not None else anyway)
        warning = f" But {stuck[0]}." if stuck is not None else ""
        confirm(what_fence_does(found) + warning, yes)
        document = order_fence(client, found, hanging)
    for problem in snapshot.problems:
        say(f"warning: it is not known whether a transaction hangs: {problem}")
    write(document, text.ended, as_json)
    if stuck is not None:
        raise Failure(*stuck)
    if snapshot.problems:
        raise Unanswered("it is fenced, but a transaction of it may hang", "the warnings above say what is not known")


@contextmanager
def _order(needs: str) -> Iterator[None]:
    """A block that gives an order: if a broker refuses it, the command has failed, and did not lack an answer."""
    from fencepost.client.admin.topics import NO_SUCH_TOPIC
    from fencepost.client.failures import BrokerError
    from fencepost.protocol import errors

    try:
        yield
    except BrokerError as e:
        if e.is_retriable or e.code in NO_SUCH_TOPIC:
            raise
        hint = f"`fencepost error {e.code}` explains this error"
        if e.code in errors.DENIALS:
            hint = _denied(needs)
        raise Failure(str(e), hint) from None


def _denied(needs: str) -> str:
    return f"this user may not do this: it needs {needs}"


def _stuck_anyway(
    cluster: ClusterOptions, hanging: Sequence[HangingTxn], nameless: Sequence[OpenTxn]
) -> tuple[str, str] | None:
    """Why fencing does not help all readers, and what does; None if nothing hangs."""
    from fencepost.diagnose.orders import what_stays_stuck

    if hanging:
        return what_stays_stuck(hanging), "this ends it: " + " && ".join(h.abort_command for h in hanging)
    if nameless:
        problem, hint = maybe_hanging(cluster, nameless)
        return f"{problem}: fencing does not end them", hint
    return None


@click.command()
@click.argument("transactional_id", metavar="[ID]", required=False)
@click.option("--topic", metavar="TOPIC", help="The topic of a partition with a hanging transaction ...")
@click.option("--partition", metavar="N", type=click.IntRange(0), help="... and the number of the partition.")
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

    With ID, aborts the open transaction of that id and fences its producer. With --topic and --partition, aborts a
    transaction that hangs there, by writing the marker that no coordinator will write. The second form is refused for
    a transaction that its coordinator knows, because it would end it on this partition only.

    \b
    Example:
        fencepost txn abort orders-sink-3 --bootstrap localhost:9092
        fencepost txn abort --topic orders --partition 0 --producer-id 4711
    """
    names_partition = topic is not None and partition is not None
    if (transactional_id is None) is not names_partition or (topic is None) is not (partition is None):
        raise WrongUse("which transaction?", "give an ID, or --topic and --partition of a hanging transaction")
    if transactional_id is not None:
        if producer_id is not None or start_offset is not None:
            raise WrongUse("an ID has only one transaction", "leave out --producer-id and --start-offset")
        _fence(transactional_id, yes, cluster, as_json, must_be_open=True)
        return
    assert topic is not None
    assert partition is not None
    from fencepost.cli.txn import text
    from fencepost.client.admin.answers import NamedPartition
    from fencepost.diagnose.orders import order_abort, what_abort_does

    with cluster.connect() as client, _order(TO_ABORT):
        found = _hanging_on(cluster, client, topic, partition, producer_id, start_offset)
        confirm(what_abort_does(NamedPartition(topic, partition), found), yes)
        document = order_abort(client, found)
    write(document, text.ended, as_json)


def _hanging_on(
    cluster: ClusterOptions,
    client: KafkaClient,
    topic: str,
    partition: int,
    producer_id: int | None,
    start_offset: int | None,
) -> list[HangingTxn]:
    """The transactions that hang on a partition; if there is none, fails with what is there instead."""
    from fencepost.client.admin.answers import NamedPartition
    from fencepost.diagnose.collect.partitions import collect_hanging
    from fencepost.diagnose.hanging import diagnose_hanging

    def is_meant(producer: int, offset: int) -> bool:
        return producer_id in (None, producer) and start_offset in (None, offset)

    where = NamedPartition(topic, partition)
    snapshot = collect_hanging(client, [topic], partition)
    report = diagnose_hanging(snapshot)
    found = [h for h in report.hanging if h.where == where and is_meant(h.producer_id, h.start_offset)]
    if found:
        return found
    if report.undecided_count or report.problems:
        hint = _denied(TO_ABORT) if is_denied(report.problems) else "try again later"
        raise Unanswered(f"it is not known whether one hangs on {where}: {report.problems[0]}", hint)
    for producer in snapshot.producers.get(where, ()):
        owner = snapshot.txns.get(producer.producer_id)
        if producer.txn_start_offset >= 0 and owner and is_meant(producer.producer_id, producer.txn_start_offset):
            raise Failure(
                f"the transaction of producer {producer.producer_id} on {where} does not hang: "
                f"`{owner.transactional_id}` is {owner.state}",
                f"`{cluster.command('txn', 'fence', about=owner.transactional_id)}` aborts it on all its partitions",
            )
    raise Failure(f"no such transaction hangs on {where}", f"`{cluster.command('txn', 'hanging')}` lists those that do")
