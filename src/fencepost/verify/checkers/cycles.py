"""Cycles of transactions over the order of the log: G0 of writes, G1c of reads. Pure.

An edge of writes leads from a transaction to the one whose record follows next in a partition. An edge of reads leads
from the transaction that wrote an input to the one that read it, was read_committed, and wrote an output of it. Cycles
that have both kinds of edges are no anomaly: Kafka does not keep the writes of transactions apart.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Mapping, Set
from itertools import pairwise
from typing import TypeVar

from fencepost.verify.checkers.index import READ_UNCOMMITTED, Index
from fencepost.verify.checkers.kinds import Anomaly
from fencepost.verify.history import Assign, Send, TxnOutcome

N = TypeVar("N", bound=Hashable)
Graph = Mapping[N, Set[N]]
TxnName = tuple[str, int]


def check_write_cycles(index: Index) -> Iterator[Anomaly]:
    """G0, which Kafka allows: one for each group of transactions that are connected in a circle."""
    edges: dict[TxnName, set[TxnName]] = defaultdict(set)
    proof: dict[tuple[TxnName, TxnName], tuple[str, str]] = {}
    for values in _by_partition(index):
        names = [(name, value) for value in values if (name := _writer(index, value)) is not None]
        for (first, value), (second, next_value) in pairwise(names):
            if first != second:
                edges[first].add(second)
                proof.setdefault((first, second), (value, next_value))
    for group in cyclic_components(edges):
        cycle = short_cycle(edges, group)
        pairs = [proof[pair] for pair in pairwise([*cycle, cycle[0]])]
        order = ", ".join(f"{first} before {second}" for first, second in pairs)
        what = f"{len(group)} transactions in a circle, such as: {order}"
        yield Anomaly("G0", what, tuple(index.sends[value] for pair in pairs for value in pair))


def _by_partition(index: Index) -> Iterator[list[str]]:
    """The records of each partition that a read_committed reader got, in the order of the log."""
    found: dict[tuple[str, int], list[tuple[int, str]]] = defaultdict(list)
    for value, (poll, offset) in index.seen.items():
        found[poll.topic, poll.partition].append((offset, value))
    for records in found.values():
        yield [value for _, value in sorted(records)]


def _writer(index: Index, value: str) -> TxnName | None:
    send = index.sends.get(value)
    if send is None or send.txn is None or index.outcome_of(value) is TxnOutcome.ABORTED:
        return None
    return send.by, send.txn


def check_read_cycles(index: Index) -> Iterator[Anomaly]:
    """G1c: transactions that read each other's records in a circle, or one that reads its own."""
    values = {place: value for value, place in index.places.items()}
    uncommitted = {
        event.by
        for events in index.readings.values()
        for event in events
        if isinstance(event, Assign) and event.isolation == READ_UNCOMMITTED
    }
    edges: dict[TxnName, set[TxnName]] = defaultdict(set)
    proof: dict[tuple[TxnName, TxnName], tuple[Send, Send]] = {}
    for send in index.sends.values():
        if send.source is None or send.txn is None or send.by in uncommitted:
            continue
        topic, partition, offset = send.source
        value = values.get((topic, partition, offset))
        source = index.sends.get(value) if value is not None else None
        if source is not None and source.txn is not None:
            pair = ((source.by, source.txn), (send.by, send.txn))
            edges[pair[0]].add(pair[1])
            proof.setdefault(pair, (source, send))
    for group in cyclic_components(edges):
        cycle = short_cycle(edges, group)
        pairs = [proof[pair] for pair in pairwise([*cycle, cycle[0]])]
        what = "; ".join(f"{send.value} was made from {source.value}" for source, send in pairs)
        yield Anomaly("G1c", what, tuple(send for pair in pairs for send in pair))


# --- graphs ---------------------------------------------------------------------------------------------------


def cyclic_components(edges: Graph[N]) -> list[list[N]]:
    """The strongly connected components that have a cycle, by Tarjan's algorithm without recursion."""
    found: list[list[N]] = []
    order: dict[N, int] = {}  # When a node was reached.
    low: dict[N, int] = {}  # The earliest node on the stack that it leads to.
    stack: list[N] = []
    on_stack: set[N] = set()
    for root in list(edges):
        if root in order:
            continue
        path = [(root, iter(edges[root]))]
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        while path:
            node, rest = path[-1]
            for below in rest:
                if below not in order:
                    order[below] = low[below] = len(order)
                    stack.append(below)
                    on_stack.add(below)
                    path.append((below, iter(edges.get(below, ()))))
                    break
                if below in on_stack:
                    low[node] = min(low[node], order[below])
            else:
                path.pop()
                if path:
                    above = path[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == order[node]:
                    component = _popped(stack, on_stack, node)
                    if len(component) > 1 or node in edges.get(node, ()):
                        found.append(component)
    return found


def _popped(stack: list[N], on_stack: set[N], until: N) -> list[N]:
    component = []
    while True:
        node = stack.pop()
        on_stack.discard(node)
        component.append(node)
        if node == until:
            return component


def short_cycle(edges: Graph[N], component: list[N]) -> list[N]:
    """A cycle of a component: one of two nodes if there is one, else a shortest one through its first node."""
    inside = set(component)
    for node in component:
        if node in edges.get(node, ()):
            return [node]
        for below in edges.get(node, ()):
            if node in edges.get(below, ()):
                return [node, below]
    first = component[0]
    reached_from: dict[N, N] = {}
    left = deque([first])
    while left:
        node = left.popleft()
        for below in edges.get(node, ()):
            if below == first:
                cycle = [node]
                while cycle[-1] != first:
                    cycle.append(reached_from[cycle[-1]])
                return cycle[::-1]
            if below in inside and below not in reached_from:
                reached_from[below] = node
                left.append(below)
    raise AssertionError("a component has a cycle")
