"""The page of a transactional id tells the same stories on our broker and on an Apache Kafka."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from fencepost.client.client import KafkaClient
from fencepost.web.cluster import WatchedCluster
from fencepost.web.page import PageRefused, SubjectNotFound
from fencepost.web.pages import txn
from tests.e2e.conftest import Target
from tests.examples import Identity, write_unknown
from tests.readers.reading import TIMEOUT_S
from tests.step_producer import StepProducer
from tests.txn_tools import cluster, create_topic, producer_of, write

PAUSE_S = 0.05


class Bench(NamedTuple):
    """A cluster, and what a test does with it."""

    servers: str
    client: KafkaClient
    cluster: WatchedCluster
    topic: str
    id: str

    def ask(self, transactional_id: str | None = None, **query: str) -> Any:
        return txn.ask(self.cluster, {"transactional_id": transactional_id or self.id}, query)

    def ask_until(self, state: str) -> Any:
        """The document once the id is in this state: Apache Kafka answers EndTxn before the markers are written."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            document = self.ask()
            found = document["machine"]["current"]
            if found == state and document["machine"]["way"][-1] == state:
                return document
            assert time.monotonic() < deadline, f"the id is {found}, not {state}"
            time.sleep(PAUSE_S)

    def act(self, action: str, **given: object) -> Any:
        """As a user who confirms at once."""
        return self.confirm(action, self.asks(action, **given).get("about"), **given)

    def confirm(self, action: str, about: object, **given: object) -> Any:
        return txn.PAGE.actions[action].do(self.cluster, {"transactional_id": self.id}, {**given, "about": about})

    def asks(self, action: str, **given: object) -> Any:
        return txn.PAGE.actions[action].says(self.cluster, {"transactional_id": self.id}, given)

    def says(self, action: str, **given: object) -> str:
        return str(self.asks(action, **given)["text"])


on_both = pytest.mark.parametrize(
    "target", ["fencepost TV2", pytest.param("apache TV2", marks=pytest.mark.java)], indirect=True
)


@contextmanager
def bench_on(servers: str, unique: Callable[[str], str]) -> Iterator[Bench]:
    def connect() -> KafkaClient:
        return KafkaClient({"bootstrap.servers": servers})

    shown = WatchedCluster(connect)
    try:
        with connect() as client:
            yield Bench(servers, client, shown, create_topic(servers, unique("page-orders")), unique("page"))
    finally:
        shown.close()


@pytest.fixture
def bench(target: Target, unique: Callable[[str], str]) -> Iterator[Bench]:
    with bench_on(target.servers, unique) as bench:
        yield bench


@pytest.fixture(params=["fencepost", pytest.param("apache", marks=[pytest.mark.java, pytest.mark.engines])])
def unverified(request: pytest.FixtureRequest, unique: Callable[[str], str]) -> Iterator[Bench]:
    """On a cluster that does not verify writes (KIP-890): a transaction can hang there."""
    with cluster(request.param) as servers, bench_on(servers, unique) as bench:
        yield bench


def story(document: Any, bench: Bench) -> list[tuple[str, str, str, str | None, str]]:
    """The steps of a document that the records show: where, what, its look, its request, and the sentence.

    Names and times are replaced, and the partition of `__consumer_offsets`, which follows from the name of the group.
    """
    titles = {lane["key"]: lane["title"] for lane in document["timeline"]["lanes"]}

    def without_names(text: str) -> str:
        text = text.replace(bench.topic, "orders").replace(bench.id, "ID")
        text = re.sub(r"__consumer_offsets-\d+( at offset \d+)?", "__consumer_offsets", text)
        return re.sub(r"after [\d.]+ m?s\b", "after T", text)

    return [
        (without_names(titles[s["lane"]]), s["name"], s["look"], s["request"], without_names(s["sentence"]))
        for s in document["timeline"]["steps"]
        if not s["key"].startswith("request ")
    ]


@on_both
def test_a_commit_is_shown_from_the_registration_to_the_readers(bench: Bench) -> None:
    producer = StepProducer(bench.client, bench.id)
    producer.init()
    producer.produce(bench.topic, 0, "one", "two")
    producer.produce(bench.topic, 1, "three")
    producer.commit_offset(f"{bench.id}-group", bench.topic, 0, 7)
    producer.commit()
    document = bench.ask_until("CompleteCommit")
    assert document["timeline"]["problems"] == []
    markers = [step for step in story(document, bench) if step[1] == "COMMIT marker"]
    others = [step for step in story(document, bench) if step[1] != "COMMIT marker"]
    assert others == [
        ("coordinator", "Empty", "plain", "InitProducerId", "a producer registered (InitProducerId)"),
        ("coordinator", "Ongoing", "open", "Produce", "began"),
        ("orders-0", "2 records", "committed", "Produce", "2 records on orders-0, offsets 0 to 1"),
        ("coordinator", "Ongoing", "open", "Produce", "added orders-1"),
        ("orders-1", "1 record", "committed", "Produce", "1 record on orders-1 at offset 0"),
        ("coordinator", "Ongoing", "open", "TxnOffsetCommit", "added __consumer_offsets"),
        ("__consumer_offsets", "1 offset", "committed", "TxnOffsetCommit",
         "offsets of group `ID-group`, which count after a commit: orders-0 at 7"),
        ("coordinator", "PrepareCommit", "committed", "EndTxn", "commit decided by its client, after T"),
        ("coordinator", "CompleteCommit", "committed", None, "committed: all markers are written, after T"),
        ("readers", "readers get the records", "committed", None,
         "readers with read_committed get the records: orders-0, offsets 0 to 1 and orders-1, offset 0"),
    ]  # fmt: skip
    # The leaders write their markers in any order.
    assert sorted(markers) == [
        ("__consumer_offsets", "COMMIT marker", "committed", "WriteTxnMarkers",
         "COMMIT marker on __consumer_offsets: the offsets are committed now"),
        ("orders-0", "COMMIT marker", "committed", "WriteTxnMarkers",
         "COMMIT marker on orders-0 at offset 2: 2 records before it count"),
        ("orders-1", "COMMIT marker", "committed", "WriteTxnMarkers",
         "COMMIT marker on orders-1 at offset 1: 1 record before it counts"),
    ]  # fmt: skip
    assert document["machine"]["way"] == [
        "Empty", "Ongoing", "Ongoing", "Ongoing", "PrepareCommit", "CompleteCommit",
    ]  # fmt: skip


@on_both
def test_an_open_transaction_shows_who_waits(bench: Bench) -> None:
    write(producer_of(bench.servers, bench.id), bench.topic, "half an order", (0,))
    document = bench.ask()
    assert story(document, bench) == [
        ("coordinator", "Empty", "plain", "InitProducerId", "a producer registered (InitProducerId)"),
        ("coordinator", "Ongoing", "open", "AddPartitionsToTxn", "began"),
        ("orders-0", "1 record", "open", "Produce", "1 record on orders-0 at offset 0"),
        ("readers", "readers wait", "open", None,
         "readers with read_committed wait on orders-0 at offset 0 (1 behind)"),
    ]  # fmt: skip
    assert [(b["topic"], b["waiting"]) for b in document["explanation"]["blocks"]] == [(bench.topic, 1)]


def ends_of(document: Any, bench: Bench) -> list[tuple[str, str, str | None, str]]:
    """Who decided, how it looks, and how it is told: the decision and what follows it."""
    titles = {lane["key"]: lane["title"] for lane in document["timeline"]["lanes"]}
    steps = document["timeline"]["steps"]
    named = [s for s in steps if not s["key"].startswith("request ") and s["lane"] == "coordinator"]
    first = next(n for n, s in enumerate(named) if s["name"].startswith("Prepare"))
    sentences = [re.sub(r"after [\d.]+ m?s\b", "after T", s["sentence"]) for s in named]
    return [
        (s["name"], s["look"], titles.get(s["sender"]), sentence)
        for s, sentence in list(zip(named, sentences, strict=True))[first:]
    ]


@on_both
def test_an_abort_by_the_client_is_told_from_the_others(bench: Bench) -> None:
    producer = producer_of(bench.servers, bench.id)
    write(producer, bench.topic, "half an order", (0,))
    producer.abort_transaction(TIMEOUT_S)
    assert ends_of(bench.ask_until("CompleteAbort"), bench) == [
        ("PrepareAbort", "aborted", "producer", "abort decided by its client, after T"),
        ("CompleteAbort", "aborted", None, "aborted: all markers are written, after T"),
    ]


@on_both
def test_a_timeout_is_told_from_the_others(bench: Bench) -> None:
    write(producer_of(bench.servers, bench.id, timeout_ms=1000), bench.topic, "half an order", (0,))
    [decided, complete] = ends_of(bench.ask_until("CompleteAbort"), bench)
    assert decided[:3] == ("PrepareAbort", "timeout", None)
    assert decided[3].startswith("abort decided by its coordinator, because it was open for longer than its timeout")
    assert complete[:3] == ("CompleteAbort", "aborted", None)


@on_both
def test_a_takeover_is_told_from_the_others(bench: Bench) -> None:
    write(producer_of(bench.servers, bench.id), bench.topic, "half an order", (0,))
    producer_of(bench.servers, bench.id)
    [decided, complete, registered] = ends_of(bench.ask_until("Empty"), bench)
    assert decided[:3] == ("PrepareAbort", "takeover", "producer, epoch 2")
    assert complete[:3] == ("CompleteAbort", "aborted", None)
    assert registered[:3] == ("Empty", "takeover", "producer, epoch 2")
    assert registered[3].endswith("producers with 1 or less are fenced")


@on_both
def test_a_fence_from_the_page_asks_first_and_says_what_it_changed(bench: Bench) -> None:
    write(producer_of(bench.servers, bench.id), bench.topic, "half an order", (0,))
    says = bench.says("fence")
    assert says.startswith("This aborts its open transaction and fences producer ")
    assert "The id gets a higher epoch than 0." in says
    assert bench.ask()["machine"]["current"] == "Ongoing"
    done = bench.act("fence")
    assert done["text"].startswith(f"`{bench.id}` is fenced: its open transaction is aborted and its producer (id ")
    assert [(p["last_stable_offset_before"], p["last_stable_offset"]) for p in done["ended"]["partitions"]] == [(0, 2)]
    document = bench.ask_until("Empty")
    [decided, _, registered] = ends_of(document, bench)
    assert decided[:3] == ("PrepareAbort", "fenced", "operator")
    assert registered[:3] == ("Empty", "fenced", "operator")
    assert document["explanation"]["cause"] == "aborted_by_order"
    assert "was decided by an operator, who fenced its producer" in document["explanation"]["paragraph"]
    assert not any("two processes" in action["advice"] for action in document["explanation"]["actions"])
    assert [order["text"] for order in document["orders"]] == [done["text"]]


@on_both
def test_a_fence_of_an_idle_producer_is_explained_as_that(bench: Bench) -> None:
    producer_of(bench.servers, bench.id)
    assert "aborts" not in bench.says("fence").partition("\n")[0]
    bench.act("fence")
    explanation = bench.ask()["explanation"]
    assert explanation["cause"] == "fenced_by_order"
    assert "(Empty): an operator fenced its producer " in explanation["paragraph"]
    producer_of(bench.servers, bench.id)
    assert bench.ask()["explanation"]["cause"] == "registered"


@on_both
def test_an_abort_from_the_page_needs_an_open_transaction(bench: Bench) -> None:
    producer = producer_of(bench.servers, bench.id)
    with pytest.raises(PageRefused, match="has no open transaction that its coordinator knows: it is Empty"):
        bench.says("abort")
    write(producer, bench.topic, "half an order", (0,))
    assert bench.act("abort")["ended"]["aborted"] is True
    with pytest.raises(SubjectNotFound, match="no coordinator knows"):
        txn.PAGE.actions["fence"].do(bench.cluster, {"transactional_id": f"{bench.id}-unknown"}, {})


@on_both
@pytest.mark.parametrize("action", ["abort", "fence"])
def test_a_confirmation_does_not_end_a_transaction_that_was_never_shown(bench: Bench, action: str) -> None:
    producer = producer_of(bench.servers, bench.id)
    write(producer, bench.topic, "the first", (0,))
    shown = bench.asks(action)["about"]
    producer.commit_transaction(TIMEOUT_S)
    write(producer, bench.topic, "the second", (0,))
    with pytest.raises(PageRefused, match="has changed since"):
        bench.confirm(action, shown)
    with pytest.raises(PageRefused, match="which transaction"):
        bench.confirm(action, None)
    producer.commit_transaction(TIMEOUT_S)


@on_both
def test_a_fence_of_an_id_without_a_transaction_does_not_end_one_that_began_since(bench: Bench) -> None:
    producer = producer_of(bench.servers, bench.id)
    shown = bench.asks("fence")["about"]
    write(producer, bench.topic, "an order", (0,))
    with pytest.raises(PageRefused, match="has changed since"):
        bench.confirm("fence", shown)
    producer.commit_transaction(TIMEOUT_S)


def test_a_late_write_is_shown_and_the_page_ends_it(unverified: Bench) -> None:
    bench = unverified
    producer = producer_of(bench.servers, bench.id)
    write(producer, bench.topic, "an order", (1,))
    producer.commit_transaction(TIMEOUT_S)
    known = bench.ask_until("CompleteCommit")["txn"]
    write_unknown(bench.servers, bench.topic, bench.id, Identity(known["producer_id"], known["producer_epoch"]))
    document = bench.ask()
    while not document["explanation"]["hanging"]:  # The pages share a search, which may be older than the write.
        document = bench.ask()
    late = [step for step in document["timeline"]["steps"] if step["look"] == "late"]
    assert [(step["name"], step["lane"]) for step in late] == [("late write", f"partition {bench.topic}-0")]
    [hanging] = document["explanation"]["hanging"]
    given = {name: hanging[name] for name in ("topic", "partition", "producer_id", "start_offset")}
    assert bench.says("abort_hanging", **given).startswith(
        f"This writes an abort marker on {bench.topic}-0 for producer"
    )
    with pytest.raises(PageRefused, match="has no hanging transaction"):
        bench.says("abort_hanging", **given | {"start_offset": 5})
    with pytest.raises(PageRefused, match="which transaction"):
        bench.says("abort_hanging")
    bench.act("abort_hanging", **given)
    assert not [step for step in bench.ask()["timeline"]["steps"] if step["look"] == "late"]


@on_both
def test_an_earlier_transaction_has_an_address_of_its_own(bench: Bench) -> None:
    producer = StepProducer(bench.client, bench.id)
    producer.init()
    for value in ("one", "two", "three"):
        producer.produce(bench.topic, 0, value)
        producer.commit()
    rounds = bench.ask_until("CompleteCommit")["timeline"]["rounds"]
    assert [round_["outcome"] for round_ in rounds] == ["committed"] * 3
    offsets = []
    for round_ in rounds:
        document = bench.ask(round=str(round_["key"]))
        assert document["timeline"]["shown"] == round_["key"]
        [step] = [s for s in document["timeline"]["steps"] if s["name"] == "1 record"]
        offsets.append(step["sources"][0]["offset"])
    assert offsets == [0, 2, 4]
    assert bench.ask(round="no number")["timeline"]["shown"] == rounds[-1]["key"]


@on_both
def test_an_unknown_id_is_explained(bench: Bench) -> None:
    producer_of(bench.servers, bench.id)
    document = bench.ask(f"{bench.id}-x")
    assert (document["txn"], document["timeline"]["steps"]) == (None, [])
    assert document["explanation"]["cause"] == "unknown_id"


@on_both
def test_only_fencepost_remembers_requests_and_the_steps_are_the_same(bench: Bench) -> None:
    write(producer_of(bench.servers, bench.id), bench.topic, "an order", (0,))
    steps = {s["name"]: s for s in bench.ask()["timeline"]["steps"]}
    behind = {
        name: [source["title"] for source in s["sources"] if source["kind"] == "request"] for name, s in steps.items()
    }
    if bench.ask()["timeline"]["remembers_requests"]:
        assert behind["Empty"][0].startswith("InitProducerId v")
        assert behind["Ongoing"][0].startswith("AddPartitionsToTxn v")
        assert behind["1 record"][0].startswith("Produce v")
    else:
        assert not any(behind.values())
    assert [steps[name]["request"] for name in ("Empty", "Ongoing", "1 record")] == [
        "InitProducerId", "AddPartitionsToTxn", "Produce",
    ]  # fmt: skip
