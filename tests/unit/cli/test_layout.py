"""Tables in a narrow and a wide terminal: no word is ever broken, and above all no id."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from fencepost.cli import consumer_groups
from fencepost.cli.error import list_text
from fencepost.cli.layout import Table, fit, wrapped
from fencepost.cli.output import Block, Fields, as_text, drawn
from fencepost.cli.txn import text
from fencepost.client.admin.answers import DescribedTxn, ListedTxn, NamedPartition, Producer, Rpc
from fencepost.client.admin.groups import GroupMember, GroupMembership, GroupOffset, ListedGroup
from fencepost.diagnose.errors.table import TABLE
from fencepost.diagnose.explain.explanation import diagnose_txn
from fencepost.diagnose.groups import diagnose_group, diagnose_groups
from fencepost.diagnose.hanging import diagnose_hanging, diagnose_producers
from fencepost.diagnose.history import diagnose_history
from fencepost.diagnose.lso import diagnose_lso
from fencepost.diagnose.orders import Ended, EndedPartition
from fencepost.diagnose.snapshot import (
    OFFSETS_TOPIC,
    GroupSnapshot,
    GroupsSnapshot,
    HistorySnapshot,
    Look,
    ProducersSnapshot,
    TxnsSnapshot,
)
from fencepost.diagnose.txns import Filters, diagnose_description, diagnose_txns
from fencepost.machines.txn.states import TxnState
from tests.unit.diagnose.snapshots import NOW_MS, described, ends, entry, producer, rpc, txn_snapshot

WIDTHS = (80, 200)
SHORT, LONG = "orders-sink-3", "orders-sink-eu-central-1-production-partition-0042-replica-b"
TOPICS = ("orders", "payments." + "by-region-and-currency." * 4)
GROUP = "billing-eu-central-1-production-nightly-settlement"
assert (len(LONG), len(TOPICS[1])) == (60, 101)


class Cluster:
    """What a cluster answers about one id and one topic."""

    def __init__(self, transactional_id: str, topic: str) -> None:
        self.where = NamedPartition(topic, 0)
        self.txn: DescribedTxn = described(transactional_id=transactional_id, partitions=(self.where,))
        self.ends = {self.where: ends(40, 90)}
        self.producers: dict[NamedPartition, tuple[Producer, ...]] = {self.where: (producer(40),)}
        self.rpcs: tuple[Rpc, ...] = (rpc(about=str(self.where)),)
        self.groups = {GROUP: {self.where: GroupOffset(40, False)}}
        self.lso = Look(
            now_ms=NOW_MS,
            ends=self.ends,
            producers=self.producers,
            txns={7: self.txn},
            rpcs={transactional_id: self.rpcs},
            groups=self.groups,
        )
        self.history = tuple(
            entry(state, -ago_ms, partitions={tuple(self.where)})
            for state, ago_ms in ((TxnState.EMPTY, 9000), (TxnState.ONGOING, 8000), (TxnState.PREPARE_ABORT, 7000))
        )
        self.snapshot = txn_snapshot(
            self.txn,
            transactional_id=transactional_id,
            ends=self.ends,
            producers=self.producers,
            history=self.history,
            rpcs=self.rpcs,
            groups=self.groups,
        )


def documents(transactional_id: str, topic: str) -> Iterator[tuple[str, Callable[[Any], Iterable[Block]], object]]:
    """The document of every command that prints a table, with what makes text of it."""
    c = Cluster(transactional_id, topic)
    listed = ListedTxn(transactional_id, 1, 7, "Ongoing")
    txns = TxnsSnapshot(
        now_ms=NOW_MS, listed=(listed,), described={transactional_id: c.txn}, updated_ms={transactional_id: NOW_MS}
    )
    yield "txn list", text.txns, diagnose_txns(txns, Filters())
    yield "txn describe", text.description, diagnose_description(c.snapshot)
    history = HistorySnapshot(
        now_ms=NOW_MS, transactional_id=transactional_id, log=None, entries=c.history, rpcs=c.rpcs
    )
    yield "txn history", text.history, diagnose_history(history)
    yield "txn explain", text.explanation, diagnose_txn(c.snapshot)
    remembered = ProducersSnapshot(now_ms=NOW_MS, producers=c.producers, txns={7: listed})
    yield "txn producers", text.producers, diagnose_producers(remembered)
    yield "txn lso", text.lso, diagnose_lso(c.lso)
    idle = {7: c.txn._replace(state="Empty")}
    hanging = Look(now_ms=NOW_MS, ends=c.ends, producers=c.producers, txns=idle)
    yield "txn hanging", text.hanging, diagnose_hanging(hanging)
    moved = EndedPartition(
        topic=topic, partition=0, last_stable_offset_before=40, last_stable_offset=91, high_watermark=91
    )
    ended = Ended(
        transactional_id=transactional_id,
        aborted=True,
        producer_id=7,
        producer_epoch=5,
        partitions=(moved,),
        hanging=(),
        summary=f"`{transactional_id}` is fenced.",
    )
    yield "txn fence", text.ended, ended
    group = ListedGroup(GROUP, 1, "consumer", "Stable")
    groups = GroupsSnapshot(now_ms=NOW_MS, listed=(group,), offsets=c.groups, ends=c.ends)
    yield "group list", consumer_groups.list_text, diagnose_groups(groups)
    member = GroupMember(f"{GROUP}-1", None, "reader", "10.0.0.9", (c.where,))
    details = GroupMembership(GROUP, "Stable", "uniform", 4, (member,))
    snapshot = GroupSnapshot(group=group, described=details, offsets=c.groups[GROUP], lso=c.lso)
    yield "group describe", consumer_groups.description_text, diagnose_group(snapshot)
    yield "error --list", list_text, tuple(TABLE.values())


CASES = [
    pytest.param(command, blocks, document, id=f"{command}-{len(transactional_id)}-{len(topic)}")
    for transactional_id, topic in ((SHORT, TOPICS[0]), (LONG, TOPICS[1]))
    for command, blocks, document in documents(transactional_id, topic)
]


@pytest.mark.parametrize("is_pending", [True, False])
def test_a_narrow_terminal_keeps_the_column_that_the_summary_of_a_group_speaks_of(
    is_pending: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = Cluster("order-service-eu-central-1", "payments-by-region")
    home = NamedPartition(OFFSETS_TOPIC, 0)
    lso = replace(c.lso, ends={**c.ends, home: ends(40, 90)}, producers={**c.producers, home: (producer(40),)})
    snapshot = GroupSnapshot(
        group=ListedGroup(GROUP, 1, "consumer", "Stable"),
        described=None,
        offsets={c.where: GroupOffset(40, is_pending)},
        lso=lso,
    )
    monkeypatch.setenv("COLUMNS", "80")
    table, _, rest = as_text(consumer_groups.description_text(diagnose_group(snapshot))).partition("(not shown")
    left_out, _, summary = " ".join(rest.split()).partition(")")
    assert ("offsets of the group are in a transaction" in summary) is is_pending
    assert left_out.startswith("in 80 columns: HIGH WATERMARK, LAST STABLE OFFSET, ")
    assert ("IN A TRANSACTION" in left_out) is not is_pending
    assert ("yes" in table.split()) is is_pending
    # A column in which every row says `no` gives way to the offsets.
    assert ("COMMITTED OFFSET" in left_out) is is_pending


def tokens(shown: str) -> set[str]:
    return set(shown.lower().split())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("command", "blocks", "document"), CASES)
def test_no_word_is_broken_at_any_width(
    command: str,
    blocks: Callable[[Any], Iterable[Block]],
    document: object,
    width: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    in_full = as_text(blocks(document))
    monkeypatch.setenv("COLUMNS", str(width))
    shown = as_text(blocks(document))
    table, _, _ = shown.partition("(not shown")
    assert tokens(table) <= tokens(in_full), "a part of a word"
    for line in shown.splitlines():
        room = width - len(line) + len(max(line.split(), key=len, default=""))
        is_command = line.lstrip().startswith("fencepost ")
        assert len(line) <= width or is_command or room < len(max(line.split(), key=len)), line
    # `txn history` may leave out the column with the partitions.
    names = {SHORT, LONG, GROUP} if command == "txn history" else {SHORT, LONG, GROUP, *TOPICS}
    for name in names:
        assert (name in shown) is (name in in_full), "an id is always shown, and in one piece"


@pytest.mark.parametrize(("command", "blocks", "document"), CASES)
def test_a_terminal_shows_the_same_lines_as_a_pipe(
    command: str, blocks: Callable[[Any], Iterable[Block]], document: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTHS[0]))
    console = Console(width=WIDTHS[0], file=io.StringIO())
    for block in blocks(document):
        console.print(drawn(block), soft_wrap=True)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().rstrip("\n") == as_text(blocks(document))


TABLE_OF_THREE = Table(
    ("TRANSACTIONAL ID", "LAST STABLE OFFSET", "WHY"),
    [("orders-sink-3", 40, "its producer has neither committed nor aborted it")],
    prose=("WHY",),
    optional=("LAST STABLE OFFSET",),
)


@pytest.mark.parametrize(
    ("width", "header", "left_out"),
    [
        (None, 1, []),
        (87, 1, []),
        (75, 1, []),
        (50, 3, []),
        (45, 1, ["LAST STABLE OFFSET"]),
    ],
)
def test_headers_and_prose_are_wrapped_before_a_column_is_left_out(
    width: int | None, header: int, left_out: list[str]
) -> None:
    grid = fit(TABLE_OF_THREE, width)
    assert grid is not None
    assert (len(grid.header), grid.left_out) == (header, left_out)


def test_a_row_becomes_a_block_where_no_table_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fit(TABLE_OF_THREE, 38) is None
    monkeypatch.setenv("COLUMNS", "38")
    table = Table(("TRANSACTIONAL ID", "LAG TO LSO", "WHY"), [(LONG, 4, None), ("b", 5, "no")])
    assert as_text([table]).splitlines() == [
        f"transactional id  {LONG}",
        "lag to LSO        4",
        "",
        "transactional id  b",
        "lag to LSO        5",
        "why               no",
    ]


def test_a_command_is_never_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    command = "    fencepost txn abort --topic orders --partition 0 --producer-id 4711"
    assert as_text([Fields([("what to do", f"- end it:\n{command}")])]).splitlines()[1] == " " * 12 + command


def test_a_number_is_not_parted_from_its_unit() -> None:
    assert wrapped("it waits for 2 h 5 m", 14) == ["it waits for", "2 h 5 m"]
    assert wrapped("it waits for 2 h 5 m", 16) == ["it waits for 2 h", "5 m"]
