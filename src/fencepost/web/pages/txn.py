"""The page of one transactional id: its states, its last transactions step by step, what it blocks, and what to do."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

from fencepost.client.admin.answers import DescribedTxn, NamedPartition
from fencepost.client.client import KafkaClient
from fencepost.commands import for_cluster
from fencepost.counting import whole_number
from fencepost.diagnose.collect.look import Seen, see_again, see_all
from fencepost.diagnose.collect.partitions import collect_hanging
from fencepost.diagnose.collect.timeline import Timelines
from fencepost.diagnose.collect.transactions import ENTRIES_FOR_THE_LATEST, collect_settled, collect_txn
from fencepost.diagnose.explain.explanation import diagnose_txn
from fencepost.diagnose.hanging import HangingTxn, diagnose_hanging, hanging_of
from fencepost.diagnose.orders import (
    Ended,
    order_abort,
    order_fence,
    what_abort_does,
    what_fence_does,
    what_fence_means,
    what_may_hang,
    what_stays_stuck,
    why_not_fence,
)
from fencepost.diagnose.timeline.timeline import TimelineSnapshot, diagnose_timeline
from fencepost.diagnose.words import plain
from fencepost.web.cluster import WatchedCluster
from fencepost.web.machine import machine_document
from fencepost.web.page import Document, Page, PageAction, PageRefused, Params, SubjectNotFound

# In the query: the round to show, by the offset of its first record.
ROUND = "round"
MOST_OFFSET = 2**63 - 1
# In the answer to the question before an action, and in its confirmation: the transaction that the user was shown.
ABOUT = "about"
MOST_ORDERS = 200


class DoneOrder(NamedTuple):
    transactional_id: str
    at_ms: int
    text: str


class DoneOrders:
    """The last orders that were given from this workbench: the cluster's log does not show who gave them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: deque[DoneOrder] = deque(maxlen=MOST_ORDERS)

    def add(self, transactional_id: str, text: str) -> None:
        with self._lock:
            self._done.append(DoneOrder(transactional_id, time.time_ns() // 1_000_000, text))

    def of(self, transactional_id: str) -> list[DoneOrder]:
        """Those about an id, the last one first."""
        with self._lock:
            return [order for order in reversed(self._done) if order.transactional_id == transactional_id]


def ask(cluster: WatchedCluster, params: Params, query: Mapping[str, str]) -> Document:
    def search(client: KafkaClient, named: Set[NamedPartition], open_now: Set[NamedPartition]) -> Seen:
        """All pages of ids share one search of the cluster."""
        return see_again(client, cluster.recent(see_all), named, open_now)

    with cluster.client() as client:
        id_, key = params["transactional_id"], _number(query.get(ROUND, ""))
        snapshot = cluster.own(Timelines).collect(client, id_, key, search)
    return txn_document(snapshot, cluster.arguments, cluster.own(DoneOrders).of(params["transactional_id"]))


def txn_document(
    snapshot: TimelineSnapshot, arguments: Sequence[str] = (), orders: Sequence[DoneOrder] = ()
) -> Document:
    """`arguments` are the options with which a command line reaches the cluster, `orders` those from this workbench."""
    txn = snapshot.txn
    timeline = diagnose_timeline(snapshot)
    explanation = for_cluster(diagnose_txn(txn), arguments)
    state = txn.txn.state if txn.txn is not None else None
    return {
        "now_ms": txn.now_ms,
        "transactional_id": txn.transactional_id,
        "coordinator": txn.coordinator,
        # None: no coordinator knows the id.
        "txn": plain(txn.txn),
        "similar": list(txn.similar),
        "machine": machine_document(state, timeline.way),
        "timeline": plain(timeline),
        "explanation": plain(explanation),
        "orders": [{"at_ms": order.at_ms, "text": order.text} for order in orders],
    }


def _number(text: object) -> int | None:
    return whole_number(str(text), MOST_OFFSET)


# --- actions ----------------------------------------------------------------------------------------------


def _settled(client: KafkaClient, transactional_id: str, must_be_open: bool) -> DescribedTxn:
    """The transaction of an id that can be fenced; raises PageRefused if it cannot."""
    # InitProducerId creates an id that does not exist.
    found = collect_settled(client, transactional_id)
    if found is None:
        raise SubjectNotFound(f"no coordinator knows `{transactional_id}`\n\nhint: /txns lists the ids of the cluster")
    refusal = why_not_fence(found, must_be_open)
    if refusal is not None:
        raise PageRefused(refusal)
    return found


def about(txn: DescribedTxn) -> str:
    """Tells one state of one transaction of an id from the others. A text, because JavaScript rounds large numbers."""
    return f"producer {txn.producer_id}, epoch {txn.producer_epoch}, start {txn.start_ms}, {txn.state}"


def check_about(txn: DescribedTxn, shown: object) -> None:
    """Raises PageRefused unless the transaction is the one that the user was asked about."""
    if shown is None:
        raise PageRefused(f"which transaction? Ask without `confirm` first, and send back its `{ABOUT}`")
    if shown != about(txn):
        raise PageRefused(
            f"the transaction of `{txn.transactional_id}` has changed since: it was ({shown}), and it is "
            f"({about(txn)})\n\nhint: nothing was done; look again"
        )


def _says_fence(must_be_open: bool) -> Any:
    def says(cluster: WatchedCluster, params: Params, body: Mapping[str, Any]) -> Document:
        with cluster.client() as client:
            found = _settled(client, params["transactional_id"], must_be_open)
            snapshot = collect_txn(client, params["transactional_id"], ENTRIES_FOR_THE_LATEST)
        texts = [what_fence_does(found), what_fence_means(found)]
        if hanging := hanging_of(snapshot):
            texts.append(f"But {what_stays_stuck(hanging)}.")
        elif snapshot.nameless:
            texts.append(f"But {what_may_hang(snapshot.nameless)}: fencing does not end them.")
        texts += [f"It is not known whether a transaction hangs: {problem}" for problem in snapshot.problems]
        return {"text": "\n".join(texts), ABOUT: about(found)}

    return says


def _do_fence(must_be_open: bool) -> Any:
    def do(cluster: WatchedCluster, params: Params, body: Mapping[str, Any]) -> Document:
        with cluster.client() as client:
            snapshot = collect_txn(client, params["transactional_id"], ENTRIES_FOR_THE_LATEST)
            # Last, so that little time is left for another change.
            found = _settled(client, params["transactional_id"], must_be_open)
            check_about(found, body.get(ABOUT))
            ended = order_fence(client, found, hanging_of(snapshot))
        return _done(cluster, params, ended)

    return do


def _hanging_on(client: KafkaClient, body: Mapping[str, Any]) -> tuple[NamedPartition, list[HangingTxn]]:
    """The partition that the browser named, and the transaction that hangs there."""
    topic, partition = body.get("topic"), _number(body.get("partition"))
    producer_id, start_offset = _number(body.get("producer_id")), _number(body.get("start_offset"))
    if not isinstance(topic, str) or partition is None or producer_id is None or start_offset is None:
        raise PageRefused("which transaction? Name its topic, partition, producer_id and start_offset")
    where = NamedPartition(topic, partition)
    report = diagnose_hanging(collect_hanging(client, [topic], partition))
    found = [
        h for h in report.hanging if (h.where, h.producer_id, h.start_offset) == (where, producer_id, start_offset)
    ]
    if not found:
        unknown = f": {report.problems[0]}" if report.problems else ""
        raise PageRefused(
            f"producer {producer_id} has no hanging transaction on {where} from offset {start_offset}{unknown}\n\n"
            "hint: nothing was done; it may have ended meanwhile, so look again"
        )
    return where, found


def _says_abort_hanging(cluster: WatchedCluster, params: Params, body: Mapping[str, Any]) -> Document:
    with cluster.client() as client:
        return {"text": what_abort_does(*_hanging_on(client, body))}


def _do_abort_hanging(cluster: WatchedCluster, params: Params, body: Mapping[str, Any]) -> Document:
    with cluster.client() as client:
        _, found = _hanging_on(client, body)
        ended = order_abort(client, found)
    return _done(cluster, params, ended)


def _done(cluster: WatchedCluster, params: Params, ended: Ended) -> Document:
    cluster.own(DoneOrders).add(params["transactional_id"], ended.summary)
    return ended_document(ended)


def ended_document(ended: Ended) -> Document:
    """The result of an order: `text` says what changed."""
    texts = [ended.summary]
    if ended.hanging:
        texts.append(f"But {what_stays_stuck(ended.hanging)}.")
    return {"text": " ".join(texts), "ended": plain(ended)}


PAGE = Page(
    path="/txn/{transactional_id:text}",
    script="txn.js",
    title="Transactional id {transactional_id}",
    ask=ask,
    actions={
        # As `fencepost txn abort ID`, `fencepost txn fence ID` and `fencepost txn abort --topic --partition`. The first
        # two send the same request, and the first one is refused without an open transaction.
        "abort": PageAction(says=_says_fence(must_be_open=True), do=_do_fence(must_be_open=True)),
        "fence": PageAction(says=_says_fence(must_be_open=False), do=_do_fence(must_be_open=False)),
        "abort_hanging": PageAction(says=_says_abort_hanging, do=_do_abort_hanging),
    },
)
