"""The documents of the overview, of the lists, of a transaction and of errors, from snapshots made by hand."""

from __future__ import annotations

import json

import pytest

from fencepost.client.admin.answers import ListedTxn, NamedPartition
from fencepost.diagnose.doctor.findings import DoctorSnapshot
from fencepost.diagnose.errors.table import TABLE
from fencepost.diagnose.overview import SHOWN, EndCount, OverviewSnapshot, Rates
from fencepost.diagnose.snapshot import Look, TxnSnapshot, TxnsSnapshot
from fencepost.diagnose.timeline.timeline import TimelineSnapshot
from fencepost.machines.txn.states import TxnState
from fencepost.protocol import errors
from fencepost.web.cluster import WatchedCluster
from fencepost.web.page import PageRefused, SubjectNotFound
from fencepost.web.pages.errors import ask_all, ask_one
from fencepost.web.pages.overview import overview_document
from fencepost.web.pages.topics import topics_document
from fencepost.web.pages.txn import txn_document
from fencepost.web.pages.txns import txns_document
from tests.unit.diagnose.snapshots import NOW_MS, ORDERS, PAYMENTS, described, ends, entry, producer, txn_snapshot

HOSTILE = "<img src=x onerror=alert(1)>\n\u202e"


def lso_snapshot() -> Look:
    return Look(
        now_ms=NOW_MS,
        ends={ORDERS: ends(40, 50), PAYMENTS: ends(9, 9), NamedPartition("audit", 0): ends(0, 0)},
        producers={ORDERS: (producer(),)},
        txns={7: described()},
    )


def txns_snapshot(idle_count: int = 3) -> TxnsSnapshot:
    open_ = described()
    idle = [ListedTxn(f"idle-{n:05}", 1, 100 + n, "CompleteCommit") for n in range(idle_count)]
    hostile = ListedTxn(HOSTILE, 1, 99, "Empty")
    return TxnsSnapshot(
        now_ms=NOW_MS,
        listed=(*idle, hostile, ListedTxn(open_.transactional_id, 1, 7, "Ongoing")),
        described={open_.transactional_id: open_},
    )


def overview_snapshot(idle_count: int = 3) -> OverviewSnapshot:
    return OverviewSnapshot(
        cluster_id="abc", broker_count=1, is_fencepost=True, lso=lso_snapshot(), txns=txns_snapshot(idle_count)
    )


def test_the_overview_counts_states_and_shows_what_is_open() -> None:
    document = overview_document(overview_snapshot(), None, None)
    assert (document["transactional_id_count"], document["open_count"]) == (5, 1)
    assert document["states"]["CompleteCommit"] == 3
    assert document["states"]["Dead"] == 0
    assert [row["transactional_id"] for row in document["oldest"]] == ["orders-sink"]
    assert [band["count"] for band in document["ages"]] == [0, 0, 1, 0, 0, 0], "twelve seconds"
    assert [(row["topic"], row["waiting"], row["age_ms"]) for row in document["gaps"]] == [("orders", 10, 12_000)]
    assert (document["partition_count"], document["waiting_partition_count"]) == (3, 1)
    assert (document["doctor"], document["rates"]) == (None, None)
    json.dumps(document, allow_nan=False)


def test_the_findings_of_doctor_are_ranked_and_their_commands_reach_the_cluster() -> None:
    doctor = DoctorSnapshot(
        now_ms=NOW_MS + 120_000,
        cluster_id="abc",
        broker_count=1,
        is_fencepost=True,
        lso=Look(
            now_ms=NOW_MS + 120_000,
            ends={ORDERS: ends(40, 50)},
            producers={ORDERS: (producer(),)},
            txns={7: described()},
        ),
        txns=txns_snapshot(),
    )
    document = overview_document(overview_snapshot(), doctor, None, ("--bootstrap", "kafka:9092"))
    findings = document["doctor"]["findings"]
    assert findings[0]["severity"] == "problem"
    assert any("--bootstrap kafka:9092" in (finding["command"] or "") for finding in findings)
    assert all("--bootstrap kafka:9092" in pin["commands"][0] for pin in document["pins"])


def test_what_cannot_be_known_is_said() -> None:
    document = overview_document(overview_snapshot(), "no right to read", "no right to count")
    assert (document["doctor_problem"], document["rates_problem"]) == ("no right to read", "no right to count")


def test_rates_are_columns_per_second() -> None:
    samples = (EndCount(1000, None), EndCount(2000, 2.0, 10, 1), EndCount(3000, 1.0, 0, 0))
    document = overview_document(overview_snapshot(), None, Rates(samples))
    assert document["rates"] == {
        "times_ms": [1000, 2000, 3000], "commits": [None, 5.0, 0.0], "aborts": [None, 0.5, 0.0], "has_estimates": False
    }  # fmt: skip


def test_an_overview_of_many_ids_stays_small() -> None:
    document = overview_document(overview_snapshot(10_000), None, None)
    assert document["transactional_id_count"] == 10_002
    assert len(document["oldest"]) <= SHOWN
    assert len(json.dumps(document)) < 20_000


def test_the_list_has_open_transactions_first_and_only_one_page() -> None:
    document = txns_document(txns_snapshot(10_000), {})
    assert document["rows"][0]["transactional_id"] == "orders-sink"
    assert (len(document["rows"]), document["total"], document["page_count"]) == (50, 10_002, 201)
    assert document["rows"][1]["transactional_id"] == HOSTILE, "then by id"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"state": "open"}, ["orders-sink"]),
        ({"state": "Ongoing"}, ["orders-sink"]),
        ({"state": "Empty"}, [HOSTILE]),
        ({"search": "IDLE-00001"}, ["idle-00001"]),
        ({"search": "102"}, ["idle-00002"]),
        ({"search": "onerror"}, [HOSTILE]),
        ({"state": "CompleteCommit", "sort": "-id"}, ["idle-00002", "idle-00001", "idle-00000"]),
    ],
)
def test_the_list_is_searched_and_ordered(query: dict[str, str], found: list[str]) -> None:
    document = txns_document(txns_snapshot(), query)
    assert [row["transactional_id"] for row in document["rows"]] == found
    assert document["id_count"] == 5


def test_a_state_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(PageRefused, match=r"(?s)state=bogus .*hint: one of open, .*CompleteCommit"):
        txns_document(txns_snapshot(), {"state": "bogus"})


def test_partitions_are_searched_and_ordered() -> None:
    def found(**query: str) -> list[tuple[str, int]]:
        return [(row["topic"], row["waiting"]) for row in topics_document(lso_snapshot(), query)["rows"]]

    assert found() == [("audit", 0), ("orders", 10), ("payments", 0)]
    assert found(waiting="1") == [("orders", 10)]
    assert found(search="pay") == [("payments", 0)]
    assert found(search="orders-0") == [("orders", 10)]
    assert found(sort="-waiting")[0] == ("orders", 10)
    [row] = topics_document(lso_snapshot(), {"waiting": "1"})["rows"]
    assert (row["transactional_id"], row["state"], row["age_ms"]) == ("orders-sink", "Ongoing", 12_000)


NO_CLUSTER = WatchedCluster(None)


def test_the_table_has_every_error_and_can_be_searched() -> None:
    assert [row["code"] for row in ask_all(NO_CLUSTER, {}, {})["errors"]] == list(TABLE)
    found = ask_all(NO_CLUSTER, {}, {"search": "Producer_Fenced"})["errors"]
    assert errors.PRODUCER_FENCED in [row["code"] for row in found]
    assert len(found) < len(TABLE)
    assert ask_all(NO_CLUSTER, {}, {"search": "no error has this"})["errors"] == []


@pytest.mark.parametrize("code", [*TABLE, errors.UNKNOWN_TOPIC_ID])
def test_every_error_has_a_page(code: int) -> None:
    document = json.loads(json.dumps(ask_one(NO_CLUSTER, {"error": str(code)}, {})))
    assert document["error"]["code"] == code
    assert document["is_transactional"] == (code in TABLE)


def test_an_error_is_found_by_its_name_in_the_java_client() -> None:
    document = ask_one(NO_CLUSTER, {"error": "ProducerFencedException"}, {})
    assert document["error"]["name"] == "PRODUCER_FENCED"
    assert document["error"]["then_text"]


def test_an_error_that_does_not_exist_is_not_found() -> None:
    with pytest.raises(SubjectNotFound, match="Kafka has no error 9999"):
        ask_one(NO_CLUSTER, {"error": "9999"}, {})


OPEN = txn_snapshot(
    described(partitions=(ORDERS,)),
    history=(entry(TxnState.EMPTY, -900), entry(TxnState.ONGOING, -800)),
    ends={ORDERS: ends(40, 45)},
    producers={ORDERS: (producer(40),)},
)


def test_the_document_has_state_way_steps_and_explanation_as_json_values() -> None:
    document = json.loads(json.dumps(txn_document(TimelineSnapshot(txn=OPEN))))
    assert document["txn"]["state"] == document["machine"]["current"] == "Ongoing"
    assert document["machine"]["way"] == ["Empty", "Ongoing"]
    assert [(step["name"], step["look"]) for step in document["timeline"]["steps"]] == [
        ("Empty", "plain"),
        ("Ongoing", "open"),
        ("readers wait", "open"),
    ]
    assert document["explanation"]["cause"] == "open"
    assert [block["topic"] for block in document["explanation"]["blocks"]] == ["orders"]


def test_commands_in_the_document_name_the_cluster() -> None:
    document = txn_document(TimelineSnapshot(txn=OPEN), ("--bootstrap", "kafka:9092"))
    commands = [action["command"] for action in document["explanation"]["actions"] if action["command"]]
    assert commands == ["fencepost txn fence orders-sink --bootstrap kafka:9092"]


def test_an_unknown_id_is_explained_with_the_ids_that_look_like_it() -> None:
    unknown = TxnSnapshot(
        now_ms=0, transactional_id="order-sink", coordinator=1, txn=None, history=(), similar=("orders-sink",)
    )
    document = txn_document(TimelineSnapshot(txn=unknown))
    assert document["txn"] is None
    assert document["similar"] == ["orders-sink"]
    assert document["timeline"]["steps"] == []
    assert document["explanation"]["cause"] == "unknown_id"
