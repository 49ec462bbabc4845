"""The pages of errors have every error of the table, and find one by its number or its name."""

from __future__ import annotations

import json

import pytest

from fencepost.diagnose.errors.table import TABLE
from fencepost.protocol import errors
from fencepost.web.cluster import WatchedCluster
from fencepost.web.page import SubjectNotFound
from fencepost.web.pages.errors import ask_all, ask_one

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
