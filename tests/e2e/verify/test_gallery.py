"""Each program of the gallery gets its verdict: right programs none, wrong ones the kind that they are made for."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.testing import Broker
from tests.engines.apache_kafka import apache_kafka
from tests.engines.java import ROOT, java_home, kafka_jars, program_command
from tests.gallery.running import INPUT, OUTPUTS, accused_of, program

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

GALLERY = ROOT / "tests" / "gallery"
STREAMS_JARS = ROOT / ".tools" / "jars" / "kafka-streams-4.3.1"
GROUP = ("--group", "tills")
# What a kill between two commits of offsets leaves behind.
REPEATED = {"duplicate", "offsets-behind", "torn-output"}


@pytest.mark.parametrize("name", ["right", "fixed_id"])
def test_a_right_program_is_not_accused_whatever_disturbs_it(name: str, start_broker: Callable[..., Broker]) -> None:
    assert accused_of(start_broker().bootstrap_servers, program(name), *GROUP, "--seconds", "60") == {}


@pytest.mark.java
def test_a_right_program_is_not_accused_on_apache_kafka_either(tmp_path: Path) -> None:
    with apache_kafka() as kafka:
        assert accused_of(kafka.bootstrap_servers, program("right"), *GROUP, "--seconds", "60") == {}


@pytest.mark.parametrize(
    ("name", "kind", "others", "faults"),
    [
        ("forgets_offsets", "duplicate", REPEATED, "kill"),
        ("offsets_first", "offsets-ahead", set(), "kill"),
        ("at_least_once", "duplicate", REPEATED, "kill"),
        ("reads_uncommitted", "aborted-input", set(), "none"),
        ("random_id", "duplicate", set(), "pause"),
    ],
)
def test_a_wrong_program_gets_its_verdict(
    name: str, kind: str, others: set[str], faults: str, start_broker: Callable[..., Broker]
) -> None:
    options = (*GROUP, "--seconds", "20", "--kill-every", "3s", "--faults", faults)
    found = accused_of(start_broker().bootstrap_servers, program(name), *options)
    assert kind in found
    assert found.keys() <= {kind, *others}


@pytest.mark.java
@pytest.mark.parametrize(("guarantee", "is_right"), [("exactly_once_v2", True), ("at_least_once", False)])
def test_kafka_streams_is_exactly_once_if_it_is_told_to(
    guarantee: str, is_right: bool, start_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    if not STREAMS_JARS.is_dir():
        pytest.skip(f"no Kafka Streams in {STREAMS_JARS}; `make test-engines` fetches it")
    class_path = f"{kafka_jars() / '*'}{os.pathsep}{STREAMS_JARS / '*'}"
    command = program_command(GALLERY / "Copying.java", guarantee, tmp_path, INPUT, *OUTPUTS, class_path=class_path)
    found = accused_of(start_broker().bootstrap_servers, command, *GROUP, "--seconds", "40", "--faults", "kill,cut")
    if is_right:
        assert found == {}
    else:
        assert "duplicate" in found
        assert found.keys() <= REPEATED


@pytest.mark.java
@pytest.mark.parametrize(("sink", "is_right"), [("fencepost", True), ("spark", False)])
def test_the_refunds_are_exactly_once_with_our_sink_and_doubled_with_sparks(
    sink: str, is_right: bool, start_broker: Callable[..., Broker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (home := java_home()) is None:
        pytest.skip("no Java")
    monkeypatch.setenv("JAVA_HOME", str(home))
    template = tmp_path / "settlement.json"
    template.write_text(
        json.dumps({"settlement_id": "{id}", "merchant": "crema-and-co", "amount_cents": "{number}"}).replace(
            '"{number}"', "{number}"
        )
    )
    command = [sys.executable, "-m", "tests.gallery.refunds", sink, str(tmp_path), INPUT, *OUTPUTS]
    found = accused_of(
        start_broker().bootstrap_servers,
        command,
        *(GROUP if is_right else ()),
        *("--template", template, "--rate", "20", "--seconds", "60", "--faults", "kill", "--first-output", "180s"),
        *("--settle", "60s"),
        timeout_s=800,
    )
    if is_right:
        assert found == {}
    else:
        assert "duplicate" in found
        assert found.keys() <= REPEATED


def test_a_program_that_starts_slowly_is_given_the_time(start_broker: Callable[..., Broker]) -> None:
    """It is killed near the end. Its transaction has timed out, and `--settle` is over, before it works again."""
    slow = ["sh", "-c", 'sleep 15; exec "$@"', "sh", *program("fixed_id")]
    options = ("--seconds", "2", "--kill-every", "1s", "--faults", "kill", "--settle", "2s")
    assert accused_of(start_broker().bootstrap_servers, slow, *GROUP, *options) == {}
