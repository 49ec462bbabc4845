"""`/topics`: every partition with its ends, and the transaction that holds its last stable offset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fencepost.client.admin.answers import NamedPartition
from fencepost.diagnose.collect.overview import collect_overview
from fencepost.diagnose.lso import lso_row
from fencepost.diagnose.snapshot import Ends, Look
from fencepost.diagnose.words import plain
from fencepost.web.cluster import WatchedCluster
from fencepost.web.page import Page, Params, is_found, shown

Entry = tuple[NamedPartition, Ends]
ORDERS: Mapping[str, Callable[[Entry], Any]] = {
    "topic": lambda entry: entry[0],
    "waiting": lambda entry: entry[1].gap,
    "lso": lambda entry: entry[1].last_stable_offset,
    "end": lambda entry: entry[1].high_watermark,
}


def topics_document(snapshot: Look, query: Mapping[str, str]) -> dict[str, Any]:
    search, only_waiting = query.get("search", ""), query.get("waiting") == "1"
    found = [
        (where, ends)
        for where, ends in sorted(snapshot.ends.items(), key=lambda entry: entry[0])
        if (ends.gap > 0 or not only_waiting) and is_found(search, str(where))
    ]
    page = shown(found, query, ORDERS, "topic")
    return {
        "now_ms": snapshot.now_ms,
        "rows": [plain(lso_row(snapshot, where, ends)) for where, ends in page.rows],
        **page.document(),
        "search": search,
        "only_waiting": only_waiting,
        "partition_count": len(snapshot.ends),
        "topic_count": len({where.topic for where in snapshot.ends}),
        "problems": [*snapshot.unanswered_coordinators, *snapshot.problems],
    }


def ask(cluster: WatchedCluster, params: Params, query: Mapping[str, str]) -> dict[str, Any]:
    return topics_document(cluster.recent(collect_overview).lso, query)


PAGE = Page(path="/topics", script="topics.js", title="Partitions", nav="Partitions", ask=ask)
