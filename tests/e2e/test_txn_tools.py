"""`fencepost txn` as the engineer on call uses it: on our broker, and on an Apache Kafka, with the same answers."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import pytest
from confluent_kafka import KafkaException, Producer

from fencepost.cli import fencepost
from fencepost.cli.options import WITHOUT_EFFECT
from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.partitions import list_offsets
from fencepost.client.client import KafkaClient
from fencepost.client.settings import INSTEAD_OF, KNOWN
from fencepost.diagnose.errors.table import TABLE
from fencepost.protocol import errors
from tests.command_line import start_fencepost
from tests.engines.java import run_java
from tests.examples import (
    FOLDER,
    ORDER,
    STORY,
    STORY_COLUMNS,
    comparable,
    example_broker,
    hang,
    hanging_broker,
    story_in_guide,
    transcript,
)
from tests.readers.reading import TIMEOUT_S, read_all
from tests.txn_tools import BOTH, Run, cluster, create_topic, producer_of, runner, write

JAVA = Path(__file__).parent / "clients" / "java"


@pytest.fixture(scope="module", params=BOTH)
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    with cluster(request.param) as servers:
        yield servers


@pytest.fixture
def run(servers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(servers, capsys, monkeypatch, "txn")


@pytest.fixture
def topic(servers: str, unique: Callable[[str], str]) -> str:
    return create_topic(servers, unique("tool-orders"))


def await_markers(run: Run, transactional_ids: Sequence[str]) -> None:
    """Until their transactions are committed and marked: Apache Kafka answers EndTxn before the markers are written."""
    deadline = time.monotonic() + TIMEOUT_S
    states: dict[str, str] = {}
    while not all(states.get(id_) == "CompleteCommit" for id_ in transactional_ids):
        assert time.monotonic() < deadline, f"no markers: {states}"
        states = {t["transactional_id"]: t["state"] for t in run("list", "--json").document["transactions"]}


@pytest.fixture
def stuck(servers: str, topic: str, unique: Callable[[str], str]) -> tuple[str, Producer]:
    """A transactional id with a transaction that is open on both partitions of the topic."""
    transactional_id = unique("stuck")
    producer = producer_of(servers, transactional_id)
    write(producer, topic, "half an order")
    return transactional_id, producer


# --- the story that the tools are for ---------------------------------------------------------------------


def test_one_stuck_producer_among_twenty_is_named_explained_and_fenced(
    servers: str, run: Run, topic: str, unique: Callable[[str], str]
) -> None:
    ids = [unique("shop") for _ in range(20)]
    producers = {transactional_id: producer_of(servers, transactional_id) for transactional_id in ids}
    guilty = ids[7]
    for transactional_id, producer in producers.items():
        write(producer, topic, transactional_id)
        if transactional_id != guilty:
            producer.commit_transaction(TIMEOUT_S)
    await_markers(run, [id_ for id_ in ids if id_ != guilty])

    named = run("lso", topic, "--json").document
    assert [pin["transactional_id"] for pin in named["pins"]] == [guilty]
    assert {row["transactional_id"] for row in named["partitions"]} == {guilty}
    # Readers get the records before it and wait for those after it: 13 records and 12 markers on each partition.
    # Kafka answers before it writes the markers, so those of the seven earlier transactions may be behind it, too.
    waiting = [row["waiting"] for row in named["partitions"]]
    assert all(25 <= count <= 25 + 7 for count in waiting)
    assert f"on {topic}-0 and {topic}-1 wait for `{guilty}`" in run("lso", topic).out

    explained = run("explain", guilty)
    assert explained.exit_code == 0
    assert f"Transaction `{guilty}` is open (Ongoing)" in explained.out
    assert f"It pins the last stable offset of {topic}-0 and {topic}-1: {sum(waiting)} offsets" in explained.out
    assert f"fencepost txn fence {guilty}" in explained.out

    fenced = run("fence", guilty, "--yes", "--json").document
    assert fenced["aborted"] is True
    assert all(p["last_stable_offset"] == p["high_watermark"] for p in fenced["partitions"])
    read = sorted((seen.value, seen.partition) for seen in read_all(servers, [topic]))
    assert read == sorted((id_, partition) for id_ in ids if id_ != guilty for partition in (0, 1))
    with pytest.raises(KafkaException, match=r"(?i)fence|epoch"):
        producers[guilty].commit_transaction(TIMEOUT_S)
    assert run("lso", topic, "--max-age", "1ms").exit_code == 0


def test_a_hanging_transaction_is_found_and_aborted(
    servers: str, run: Run, topic: str, unique: Callable[[str], str], stuck: tuple[str, Producer]
) -> None:
    transactional_id = unique("hanging")
    producer_id, offset = hang(servers, topic, transactional_id)

    found = run("hanging", "--json")
    assert found.exit_code == 1
    assert [(h["topic"], h["partition"], h["producer_id"], h["start_offset"]) for h in found.document["hanging"]] == [
        (topic, 0, producer_id, offset)
    ]
    [hanging] = found.document["hanging"]
    assert hanging["transactional_id"] == transactional_id
    assert hanging["why"] == f"`{transactional_id}` has no open transaction (it is Empty)"
    assert found.document["open_count"] >= 1, "the other one is open too, and has a coordinator"
    assert "hangs" not in run("explain", stuck[0]).out

    # The printed command ends it.
    order = hanging["abort_command"].split()[2:]
    assert run(*order).exit_code == 2, "it asks for confirmation, and there is no terminal"
    aborted = run(*order, "--yes", "--json")
    assert aborted.exit_code == 0, aborted.err
    assert run("hanging").exit_code == 0
    # The other one is still open, and the tool refuses to write a marker for it.
    refused = run("abort", "--topic", topic, "--partition", "0", "--yes")
    assert refused.exit_code == 1
    assert f"`{stuck[0]}` is Ongoing" in refused.err
    assert f"fencepost txn fence {stuck[0]}" in refused.err
    stuck[1].abort_transaction(TIMEOUT_S)
    assert read_all(servers, [topic]) == []


# --- one command after the other --------------------------------------------------------------------------


def test_the_last_requests_show_which_client_fenced_which(
    servers: str, run: Run, topic: str, unique: Callable[[str], str], request: pytest.FixtureRequest
) -> None:
    """Which request was in flight when the producer was fenced? Only our broker remembers requests."""
    transactional_id = unique("zombie")
    zombie = producer_of(servers, transactional_id, client_id="first")
    write(zombie, topic, "half an order", partitions=(0,))
    assert run("lso", topic, "--json").document["partitions"][0]["client_id"] in ("first", None)
    producer_of(servers, transactional_id, client_id="second")
    with pytest.raises(KafkaException):
        zombie.commit_transaction(TIMEOUT_S)

    result = run("history", transactional_id, "--rpc", "--json")
    if "apache" in request.node.name:
        assert result.exit_code == 1
        assert "do not remember requests" in result.err
        return
    rpcs = [(rpc["client_id"], rpc["name"], rpc["result"]) for rpc in result.document["rpcs"]]
    assert rpcs == [
        ("first", "InitProducerId", "NONE"),
        ("first", "AddPartitionsToTxn", "NONE"),
        ("first", "Produce", "NONE"),
        ("second", "InitProducerId", "NONE"),
        ("first", "EndTxn", "INVALID_PRODUCER_EPOCH"),
    ]
    assert {rpc["host"] for rpc in result.document["rpcs"]} == {"127.0.0.1"}
    assert all(rpc["duration_us"] >= 0 for rpc in result.document["rpcs"])
    assert f"{topic}-0" in run("history", transactional_id, "--rpc").out
    few = run("history", transactional_id, "--rpc", "--last", "2", "--json").document
    assert few["rpcs"] == result.document["rpcs"][-2:]
    assert len(few["transitions"]) == 2
    assert "The last request for it was EndTxn" in run("explain", transactional_id).out


def test_an_id_that_does_not_exist_is_not_created(run: Run, stuck: tuple[str, Producer]) -> None:
    for order in (["fence", f"{stuck[0]}x", "--yes"], ["abort", f"{stuck[0]}x", "--yes"], ["describe", f"{stuck[0]}x"]):
        refused = run(*order)
        assert refused.exit_code == 1
        assert f"no coordinator knows `{stuck[0]}x`" in refused.err
    assert stuck[0] in run("explain", f"{stuck[0]}x").out, "the similar id is named"
    assert f"{stuck[0]}x" not in run("list").out


def test_a_producer_is_fenced_right_after_its_commit(
    servers: str, run: Run, topic: str, unique: Callable[[str], str]
) -> None:
    """Apache Kafka answers the commit before it writes the markers."""
    transactional_id = unique("done")
    producer = producer_of(servers, transactional_id)
    for n in range(5):
        write(producer, topic, f"order {n}")
        producer.commit_transaction(TIMEOUT_S)
        fenced = run("fence", transactional_id, "--yes", "--json")
        assert (fenced.exit_code, fenced.document["aborted"]) == (0, False), fenced.err
        producer = producer_of(servers, transactional_id)


def test_an_abort_needs_something_to_abort(run: Run, stuck: tuple[str, Producer]) -> None:
    assert run("fence", stuck[0], "--yes").exit_code == 0
    refused = run("abort", stuck[0], "--yes")
    assert refused.exit_code == 1
    assert "has no open transaction that its coordinator knows: it is Empty" in refused.err


def test_watch_shows_the_change(servers: str, run: Run, topic: str, stuck: tuple[str, Producer]) -> None:
    arguments = ["txn", "lso", topic, "--watch", "--every", "100ms", "--json", "--bootstrap", servers]
    with start_fencepost(*arguments) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["pins"][0]["transactional_id"] == stuck[0]
            stuck[1].abort_transaction(TIMEOUT_S)
            assert any(json.loads(line)["pins"] == [] for line in process.stdout)
            process.send_signal(signal.SIGINT)
            assert process.wait(TIMEOUT_S) == 0
        finally:
            process.kill()


def test_the_settings_of_the_client_come_from_a_file(
    servers: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FENCEPOST_BOOTSTRAP")
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={servers}\nsecurity.protocol = PLAINTEXT\n")
    assert run("list", "--command-config", str(file)).exit_code == 0
    refused = run("list", "--command-config", str(file), "--set", "security.protcol=SSL")
    assert refused.exit_code == 2
    assert "did you mean security.protocol?" in refused.err
    with KafkaClient({"bootstrap.servers": servers}) as client:
        assert list_offsets(client, [NamedPartition("no-such-topic", 0)]).problems


@pytest.mark.java
def test_every_setting_of_kafka_s_own_tools_is_used_ignored_or_refused_with_a_hint() -> None:
    lines = run_java(JAVA / "ClientSettings.java").splitlines()
    names = {line.removeprefix("admin.").rstrip("=") for line in lines if line.startswith("admin.")}
    answered = {name for name in names if any(name.startswith(prefixes) for prefixes in INSTEAD_OF)}
    assert names <= KNOWN.keys() | WITHOUT_EFFECT | answered
    assert not KNOWN.keys() & WITHOUT_EFFECT


# --- the pages --------------------------------------------------------------------------------------------


def test_every_page_shows_what_its_command_prints() -> None:
    with example_broker() as broker:
        for name, commands in ORDER.items():
            shown = (FOLDER / f"{name}.txt").read_text()
            assert [line[2:] for line in shown.splitlines() if line.startswith("$ ")] == commands
            seen = transcript(commands, broker.bootstrap_servers)
            assert comparable(seen) == comparable(shown), f"{name}; to renew: python -m tests.examples"


def test_the_monitoring_guide_tells_how_a_hanging_transaction_is_cured_with_the_real_commands() -> None:
    shown = story_in_guide()
    assert [line[2:] for line in shown.splitlines() if line.startswith("$ ")] == STORY
    with hanging_broker() as broker:
        seen = transcript(STORY, broker.bootstrap_servers, STORY_COLUMNS)
    assert comparable(seen) == comparable(shown), "to renew: python -m tests.examples"


def test_every_command_has_an_example_that_is_run() -> None:
    """Except for those that have their own tests: some need several nodes, a file, or Spark."""
    others = ("cluster", "demo", "salvage", "spark-jar", "tap", "user", "verify", "web")
    paths = ["-".join(path) for path, _ in leaves(fencepost) if path[0] not in others]
    assert sorted(paths) == sorted(ORDER)
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(ORDER)


def test_every_command_has_a_page() -> None:
    pages = {path.stem for path in (FOLDER.parent / "commands").glob("*.md")}
    assert pages == {"README", *("-".join(path) for path, _ in leaves(fencepost))}


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name), command


# --- errors -----------------------------------------------------------------------------------------------


@pytest.mark.java
def test_the_table_of_errors_has_the_java_client_s_names_and_families() -> None:
    lines = [line.split() for line in run_java(JAVA / "ErrorClasses.java").splitlines()]
    java = {int(code): (name, thrown, family, retriable) for code, name, thrown, family, retriable in lines}
    assert {code for code, row in java.items() if row[3] == "true"} == errors.RETRIABLE
    assert {code: row[0] for code, row in java.items()}.items() <= errors.NAMES.items()
    for entry in TABLE.values():
        if entry.java is not None:
            assert (entry.name, entry.java, entry.java_family) == java[entry.code][:3]
        else:
            assert entry.code not in java
