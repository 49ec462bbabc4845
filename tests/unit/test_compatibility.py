"""docs/compatibility.md is what the last run found, with the APIs as they are now."""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path

import pytest

from tests.e2e.clients.compatibility import claim_of, client_of

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("compatibility", ROOT / "scripts/compatibility.py")
assert _spec is not None
assert _spec.loader is not None
compatibility = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(compatibility)

RESULTS = json.loads(compatibility.RESULTS.read_text())


def test_the_page_is_what_the_run_found_and_what_the_code_serves() -> None:
    again = "run: .venv/bin/python scripts/compatibility.py --page"
    assert compatibility.PAGE.read_text() == compatibility.page(RESULTS), again


def test_every_scenario_was_run_with_every_client() -> None:
    tree = ast.parse((ROOT / "tests/e2e/clients" / compatibility.SCENARIOS).read_text())
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    wanted = {(claim_of(f"::{name}"), client) for name in names for client in compatibility.CLIENTS}
    played = [test for test in RESULTS["tests"] if compatibility.SCENARIOS in test["test"]]
    assert {(test["claim"], test["client"]) for test in played} == wanted, "run: make compat"


def test_nothing_on_the_page_failed() -> None:
    assert [test["test"] for test in RESULTS["tests"] if test["result"] == "failed"] == []


@pytest.mark.parametrize(
    ("test", "client", "claim"),
    [
        ("test_transactions.py::test_it_holds[fencepost-franz-go]", "franz-go", "it holds"),
        ("test_transactions.py::test_it_holds[fencepost-kafka-python]", "kafka-python", "it holds"),
        ("test_kafka_python.py::test_a_codec[lz4]", "kafka-python", "a codec (lz4)"),
        ("test_admin.py::test_confluent_asks", "confluent-kafka", "confluent asks"),
        ("test_consumer_protocol.py::test_java_members", "java", "java members"),
        ("test_kafka_tools.py::test_kafka_topics_lists", None, "kafka topics lists"),
    ],
)
def test_a_test_belongs_to_the_client_that_it_names(test: str, client: str | None, claim: str) -> None:
    assert client_of(f"tests/e2e/clients/{test}") == client
    assert claim_of(f"tests/e2e/clients/{test}") == claim
