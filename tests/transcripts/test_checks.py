"""The checks of transaction requests (tests/conformance/checks.txt), on the pure broker. No version is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.checks import apis, parse_checks, prepare, run_checks, served_versions
from tests.conformance.records import LogReader
from tests.pure_broker import PureBroker
from tests.transcripts.client import Client
from tests.transcripts.names import Names
from tests.transcripts.test_transcripts import PREPARE, PatientBroker

TRANSACTION_APIS = {
    "AddOffsetsToTxn",
    "AddPartitionsToTxn",
    "DescribeProducers",
    "DescribeTransactions",
    "EndTxn",
    "FindCoordinator",
    "InitProducerId",
    "ListTransactions",
    "Produce",
    "TxnOffsetCommit",
    "WriteTxnMarkers",
}


@pytest.mark.parametrize("api", apis())
def test_the_broker_answers_as_the_checks_say(api: str) -> None:
    broker = PureBroker()
    prepare(broker)
    assert not run_checks(api, broker, f"checks.{api}.")


@pytest.mark.parametrize("api", apis())
def test_in_apache_kafkas_order_the_final_answers_and_records_are_the_same(api: str) -> None:
    prefix = f"checks.{api}."
    one, other = PureBroker(), PatientBroker(PREPARE)
    for broker in (one, other):
        prepare(broker)
        assert not run_checks(api, broker, prefix)
    readers = [LogReader(Client(broker, Names(prefix))) for broker in (one, other)]
    assert readers[0].states() == readers[1].states()
    assert readers[0].groups() == readers[1].groups()


def test_every_version_that_is_served_is_checked() -> None:
    assert set(apis()) == TRANSACTION_APIS
    for api in apis():
        checked = {version for check in parse_checks() if check.api == api for version in check.versions}
        assert checked == set(served_versions(api)), api


def test_what_is_left_to_transcripts_is_there() -> None:
    folder = Path(__file__).parent
    missing = {name for check in parse_checks() for name in check.see if not (folder / f"{name}.txt").exists()}
    assert not missing
    assert all(check.lines or check.see for check in parse_checks())
