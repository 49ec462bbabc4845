"""The page of one transactional id: its states, its last transactions step by step, what it blocks, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fencepost.client.admin.answers import DescribedTxn, NamedPartition
from fencepost.client.client import KafkaClient
from fencepost.client.numbers import whole_number
from fencepost.diagnose.collect.partitions import collect_hanging
from fencepost.diagnose.collect.timeline import Timelines
from fencepost.diagnose.collect.transactions import ENTRIES_FOR_THE_LATEST, collect_settled, collect_txn
from fencepost.diagnose.commands import for_cluster
from fencepost.diagnose.explain.explanation import diagnose_txn
from fencepost.diagnose.hanging import HangingTxn, diagnose_hanging, hanging_of
from fencepost.diagnose.orders import (
    Ended,
    order_abort,
    order_fence,
    what_abort_does,
    what_fence_does,
    what_may_hang,
    what_stays_stuck,
    why_not_fence,
)
from fencepost.diagnose.plain import plain
from fencepost.diagnose.timeline.timeline import TimelineSnapshot, diagnose_timeline
from fencepost.web.cluster import WatchedCluster
from fencepost.web.machine import machine_document
from fencepost.web.page import Document, Page, PageAction, PageRefused, Params, SubjectNotFound

# In the query: the round to show, by the offset of its first record.
ROUND = "round"
MOST_OFFSET = 2**63 - 1
# In the answer to the question before an action, and in its confirmation: the transaction that the user was shown.
ABOUT = "about"


def ask(cluster: WatchedCluster, params: Params, query: Mapping[str, str]) -> Document:
    with cluster.client() as client:
        snapshot = cluster.own(Timelines).collect(client, params["transactional_id"], _number(query.get(ROUND, "")))
    return txn_document(snapshot, cluster.arguments)


def txn_document(snapshot: TimelineSnapshot, arguments: Sequence[str] = ()) -> Document:
    """`arguments` are the options with which a command line reaches the cluster."""
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
    }


def _number(text: object) -> int | None:
    return whole_number(str(text), MOST_OFFSET)


# --- actions ----------------------------------------------------------------------------------------------


def _settled(client: KafkaClient, transactional_id: str, must_be_open: bool) -> DescribedTxn:
    """The transaction of an id that can be fenced; raises PageRefused if it cannot."""
    # InitProducerId creates an id that does not exist.
    found = collect_settled(client, transactional_id)
    if found is None:
        raise SubjectNotFound(f"no coordinator knows `{transactional_id}`")
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
        texts = [what_fence_does(found)]
        if hanging := hanging_of(snapshot):
            texts.append(f"But {what_stays_stuck(hanging)}.")
        elif snapshot.nameless:
            texts.append(f"But {what_may_hang(snapshot.nameless)}: fencing does not end them.")
        texts += [f"It is not known whether a transaction hangs: {problem}" for problem in snapshot.problems]
        return {"text": " ".join(texts), ABOUT: about(found)}

    return says


def _do_fence(must_be_open: bool) -> Any:
    def do(cluster: WatchedCluster, params: Params, body: Mapping[str, Any]) -> Document:
        with cluster.client() as client:
            snapshot = collect_txn(client, params["transactional_id"], ENTRIES_FOR_THE_LATEST)
            # Last, so that little time is left for another change.
            found = _settled(client, params["transactional_id"], must_be_open)
            check_about(found, body.get(ABOUT))
            ended = order_fence(client, found, hanging_of(snapshot))
        return ended_document(ended)

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
            f"producer {producer_id} has no hanging transaction on {where} from offset {start_offset}{unknown}"
        )
    return where, found


def _says_abort_hanging(cluster: WatchedCluster, params: Params, body: Mapping[str, Any]) -> Document:
    with cluster.client() as client:
        return {"text": what_abort_does(*_hanging_on(client, body))}


def _do_abort_hanging(cluster: WatchedCluster, params: Params, body: Mapping[str, Any]) -> Document:
    with cluster.client() as client:
        _, found = _hanging_on(client, body)
        return ended_document(order_abort(client, found))


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
        # As `fencepost txn abort ID`, `fencepost txn fence ID` and `fencepost txn abort --topic --partition`.
        "abort": PageAction(says=_says_fence(must_be_open=True), do=_do_fence(must_be_open=True)),
        "fence": PageAction(says=_says_fence(must_be_open=False), do=_do_fence(must_be_open=False)),
        "abort_hanging": PageAction(says=_says_abort_hanging, do=_do_abort_hanging),
    },
)
