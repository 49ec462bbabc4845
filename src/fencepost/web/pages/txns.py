"""`/txns`: every transactional id, with search, order and pages on the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fencepost.client.admin.answers import ListedTxn
from fencepost.diagnose.collect.transactions import collect_open_txns
from fencepost.diagnose.snapshot import TxnsSnapshot, is_open
from fencepost.diagnose.txns import Filters, age_of, diagnose_txns
from fencepost.diagnose.words import plain
from fencepost.machines.txn.states import BY_KAFKA_NAME
from fencepost.web.cluster import WatchedCluster
from fencepost.web.page import Page, PageRefused, Params, is_found, shown

OPEN = "open"
STATES = (OPEN, *BY_KAFKA_NAME)


def txns_document(snapshot: TxnsSnapshot, query: Mapping[str, str]) -> dict[str, Any]:
    search, state = query.get("search", ""), _state(query.get("state", ""))
    found = [
        txn
        for txn in sorted(snapshot.listed)
        if is_found(search, txn.transactional_id, str(txn.producer_id)) and _is_in(txn, state)
    ]
    # Only the rows of the page are made: there can be very many ids.
    page = shown(found, query, _orders(snapshot), "-age")
    order = {txn.transactional_id: n for n, txn in enumerate(page.rows)}
    rows = diagnose_txns(replace(snapshot, listed=tuple(page.rows)), Filters()).transactions
    return {
        "now_ms": snapshot.now_ms,
        "rows": plain(sorted(rows, key=lambda row: order[row.transactional_id])),
        **page.document(),
        "search": search,
        "state": state,
        "states": STATES,
        "id_count": len(snapshot.listed),
        "problems": list(snapshot.problems),
    }


def _state(asked: str) -> str:
    if asked and asked not in STATES:
        raise PageRefused(f"state={asked} is no state of a transaction\n\nhint: one of {', '.join(STATES)}")
    return asked


def _is_in(txn: ListedTxn, state: str) -> bool:
    return not state or (is_open(txn.state) if state == OPEN else txn.state == state)


def _orders(snapshot: TxnsSnapshot) -> dict[str, Callable[[ListedTxn], Any]]:
    def age_ms(txn: ListedTxn) -> int:
        described = snapshot.described.get(txn.transactional_id)
        age_ms = age_of(described, snapshot.now_ms) if described is not None else None
        return -1 if age_ms is None else age_ms

    return {
        "age": age_ms,
        "id": lambda txn: txn.transactional_id,
        "state": lambda txn: txn.state,
        "producer": lambda txn: txn.producer_id,
        "coordinator": lambda txn: txn.coordinator,
    }


def ask(cluster: WatchedCluster, params: Params, query: Mapping[str, str]) -> dict[str, Any]:
    return txns_document(cluster.recent(collect_open_txns), query)


PAGE = Page(path="/txns", script="txns.js", title="Transactional ids", nav="Transactions", ask=ask)
