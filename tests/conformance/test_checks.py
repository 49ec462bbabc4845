"""Every check of every transaction request (checks.txt), on a real Apache Kafka: it answers, and writes, what we do."""

from __future__ import annotations

import pytest

from tests.conformance.checks import apis, prepare, run_checks
from tests.conformance.records import LogReader
from tests.conformance.test_against_apache_kafka import ApacheTarget
from tests.pure_broker import PureBroker
from tests.transcripts.client import Client
from tests.transcripts.names import Names
from tests.transcripts.target import Target

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def stage(oracle: ApacheTarget) -> ApacheTarget:
    prepare(oracle)
    return oracle


@pytest.mark.parametrize("api", apis())
def test_apache_kafka_answers_and_writes_as_we_do(api: str, stage: ApacheTarget) -> None:
    prefix = f"checks.{api}."
    assert not run_checks(api, stage, prefix)
    ours = PureBroker()
    prepare(ours)
    assert not run_checks(api, ours, prefix)
    assert records(ours, prefix) == records(stage, prefix)


def records(target: Target, prefix: str) -> tuple[list[str], dict[str, list[str]]]:
    """What the coordinators wrote down of ids and groups that begin with `prefix`. All producers are the same here."""
    reader = LogReader(Client(target, Names(prefix)))
    return reader.states(), reader.groups()
