"""`fencepost group`: consumer groups, how far they have read, and which of them wait behind a last stable offset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from fencepost.cli.groups import HelpfulGroup
from fencepost.cli.options import ClusterOptions, as_json_option, cluster_options, watch_options
from fencepost.cli.streams import Failure, say
from fencepost.cli.txn.showing import require_answers, show

if TYPE_CHECKING:
    from fencepost.cli.output import Block
    from fencepost.diagnose.groups import GroupDescription, GroupList, GroupPartition
    from fencepost.diagnose.lso import Pin


@click.group(cls=HelpfulGroup)
def group() -> None:
    """Show the consumer groups of any Kafka cluster

    A group with read_committed reads up to the last stable offset (LSO). If a transaction holds the LSO, the group
    waits there, and its lag to the high watermark grows.

    \b
    Example:
        export FENCEPOST_BOOTSTRAP=localhost:9092
        fencepost group list
        fencepost group describe billing
    """


@group.command("list")
@click.option("--waiting", is_flag=True, help="Only groups that wait for a transaction.")
@click.option("--all", "with_notes", is_flag=True, help="Also the groups in which the Spark sink keeps its notes.")
@watch_options
@cluster_options
@as_json_option
def list_(waiting: bool, with_notes: bool, every_ms: int | None, cluster: ClusterOptions, as_json: bool) -> None:
    """List the consumer groups, those that wait first

    Shows how many offsets each group is behind the last stable offset (LSO) and behind the high watermark, and on how
    many partitions it waits because a transaction holds the LSO. A member without a committed offset waits there, too.
    While an offset of the group is in a transaction, a new member cannot start (UNSTABLE_OFFSET_COMMIT).

    Groups with notes of the Spark sink (fencepost-marker-ID, fencepost-token-ID:TOKEN) are left out: no consumer reads
    with them, so their lag has no meaning.

    \b
    Example:
        fencepost group list --bootstrap localhost:9092
        fencepost group list --waiting --watch
    """
    from fencepost.counting import counted
    from fencepost.diagnose.collect.groups import collect_groups
    from fencepost.diagnose.groups import diagnose_groups

    with cluster.connect() as client:

        def look() -> GroupList:
            return diagnose_groups(collect_groups(client, with_notes=with_notes), waiting)

        found = show(look, list_text, as_json, every_ms)
    if found is None:
        return
    require_answers(found.problems)
    if not found.groups:
        none = f"none of {counted(found.total, 'consumer group')} waits"
        say(none if found.total else "no consumer groups that this user can see")


@group.command()
@click.argument("group_id", metavar="NAME")
@watch_options
@cluster_options
@as_json_option
def describe(group_id: str, every_ms: int | None, cluster: ClusterOptions, as_json: bool) -> None:
    """Show the members and offsets of one group

    Shows for each partition how far the group is behind the last stable offset (LSO) and behind the high watermark,
    whether a newer offset is in a transaction that has not ended, and the transaction that the group waits for, with
    the command that explains or ends it. While an offset is in a transaction, a new member cannot start.

    \b
    Example:
        fencepost group describe billing --bootstrap localhost:9092
    """
    from fencepost.diagnose.collect.groups import collect_group
    from fencepost.diagnose.groups import diagnose_group
    from fencepost.diagnose.snapshot import GroupSnapshot
    from fencepost.printable import printable

    with cluster.connect() as client:

        def look() -> GroupDescription:
            snapshot = collect_group(client, group_id)
            if not isinstance(snapshot, GroupSnapshot):
                every = f"`{cluster.command('group', 'list')}` lists all groups"
                hint = f"did you mean {snapshot[0]}?" if snapshot else every
                raise Failure(printable(f"there is no consumer group {group_id}"), printable(hint))
            return cluster.pasteable(diagnose_group(snapshot))

        found = show(look, description_text, as_json, every_ms)
    if found is not None:
        require_answers(found.problems)


def list_text(document: GroupList) -> Iterator[Block]:
    from fencepost.cli.output import Paragraph, Table
    from fencepost.cli.txn.text import lag_text
    from fencepost.counting import counted

    yield Table(
        (
            *("GROUP", "STATE", "PROTOCOL", "PARTITIONS", "WAITS ON", "IN A TRANSACTION"),
            *("LAG TO LSO", "LAG TO HIGH WATERMARK", "COORDINATOR"),
        ),
        [
            (
                *(row.group_id, row.state, row.protocol, row.partition_count, row.waiting_count, row.pending_count),
                *(lag_text(row.lag_to_lso, row.unknown_count), lag_text(row.lag_to_high_watermark, row.unknown_count)),
                row.coordinator,
            )
            for row in document.groups
        ],
        optional=("COORDINATOR", "PROTOCOL", "PARTITIONS", "IN A TRANSACTION", "STATE"),
    )
    if document.left_out:
        groups = counted(document.left_out, "group")
        yield Paragraph(f"{groups} with notes of the Spark sink left out; --all lists them")


def description_text(document: GroupDescription) -> Iterator[Block]:
    from fencepost.cli.output import Fields, Paragraph, Table
    from fencepost.cli.txn.text import lag_text, waits_for
    from fencepost.client.admin.answers import NamedPartition

    yield Fields(
        [
            ("group", document.group_id),
            ("state", document.state),
            ("protocol", document.protocol),
            ("coordinator", f"broker {document.coordinator}"),
            ("assignor", document.assignor),
            ("epoch", document.epoch),
            ("members", len(document.members)),
            ("lag to LSO", lag_text(document.lag_to_lso, document.unknown_count)),
            ("lag to high watermark", lag_text(document.lag_to_high_watermark, document.unknown_count)),
        ]
    )
    if document.members:
        yield Table(
            ("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"),
            [
                (m.member_id, m.instance_id, m.client_id, m.host, ", ".join(map(str, m.partitions)) or None)
                for m in document.members
            ],
            prose=("PARTITIONS",),
            optional=("INSTANCE", "HOST"),
        )
    if document.partitions:
        # The last paragraph is about offsets in a transaction; their column says on which partitions they are.
        is_pending = any(p.is_pending for p in document.partitions)
        least = (
            ("COMMITTED OFFSET", "LAG TO HIGH WATERMARK") if is_pending else ("IN A TRANSACTION", "COMMITTED OFFSET")
        )
        yield Table(
            (
                *("PARTITION", "COMMITTED OFFSET", "LAST STABLE OFFSET", "HIGH WATERMARK"),
                *("LAG TO LSO", "LAG TO HIGH WATERMARK", "IN A TRANSACTION", "WAITS FOR"),
            ),
            [
                (
                    *(NamedPartition(p.topic, p.partition), p.committed_offset, p.last_stable_offset),
                    *(p.high_watermark, lag_text(p.lag_to_lso), lag_text(p.lag_to_high_watermark)),
                    *("yes" if p.is_pending else "no", _waits_for(p)),
                )
                for p in document.partitions
            ],
            optional=("HIGH WATERMARK", "LAST STABLE OFFSET", *least),
        )
    if document.pins:
        yield Paragraph("\n".join(map(waits_for, document.pins)), is_bold=True)
    if document.offsets_wait_for is not None:
        yield Paragraph(_what_holds_offsets(document.offsets_wait_for), is_bold=True)


def _what_holds_offsets(pin: Pin) -> str:
    """Why a new member cannot start, and the commands to call next."""
    from fencepost.cli.txn.text import name_of

    hangs = " that hangs: its coordinator does not know it" if pin.is_orphan else ""
    said = (
        "A new member cannot start (UNSTABLE_OFFSET_COMMIT): offsets of the group are in a transaction. The oldest one "
        f"that holds offsets is of {name_of(pin)}{hangs}:"
    )
    return "\n".join([said, *(f"  {command}" for command in pin.commands)])


def _waits_for(partition: GroupPartition) -> str | None:
    row = partition.waits_for
    if row is None or row.producer_id is None:
        return None
    return row.transactional_id if row.transactional_id is not None else f"producer {row.producer_id}"
