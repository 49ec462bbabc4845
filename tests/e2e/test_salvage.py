"""A bad byte in a log, as an operator meets it: the start cuts the log, and the commands bring the records back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from fencepost.protocol.batch import decode_header
from fencepost.testing import Broker
from tests.command_line import run_fencepost
from tests.e2e.conftest import Target
from tests.readers.reading import TIMEOUT_S, read_all
from tests.wire.tv2_client import Tv2Client

FIRST = "00000000000000000000.log"
WHEN_MS = time.time_ns() // 1_000_000 - 60_000  # Not so long ago that retention removes the records.


class Damaged(NamedTuple):
    broker: Broker
    data: Path

    @property
    def file(self) -> Path:
        return self.data / "orders-0" / f"{FIRST}.cut-1"


def produce(servers: str, topic: str, *records: dict[str, Any]) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "compression.type": "lz4"})
    for record in records:
        producer.produce(topic, timestamp=WHEN_MS, **record)
        producer.flush()


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Damaged]:
    """A broker that found one bad byte after another boot of the machine.

    Before it is one record. Behind it are two plain ones, a committed, an aborted and an open transaction.
    """
    data = tmp_path_factory.mktemp("salvage") / "data"
    with Broker(data=data) as broker:
        produce(broker.bootstrap_servers, "orders", {"value": b"before"}, {"value": b"hit"})
        headers = [("trace", b"\xff\x00"), ("none", None)]
        produce(
            broker.bootstrap_servers,
            "orders",
            {"key": b"k", "value": b"plain", "headers": headers},
            {"key": b"gone", "value": None},
        )
        produce(broker.bootstrap_servers, "copies", {"value": b"first"})
        for number, commit in enumerate((True, False, None)):
            client = Tv2Client(broker.bootstrap_servers, f"writer-{number}")
            client.init()
            assert client.produce({("orders", 0): [f"{commit} {n}" for n in range(2)]}) == 0
            if commit is not None:
                assert client.end(commit) == 0
        broker.kill()
        (data / "boot-id").write_text("another boot")
        path = data / "orders-0" / FIRST
        log = bytearray(path.read_bytes())
        second = decode_header(log).size_bytes
        log[second + decode_header(log, second).size_bytes - 2] ^= 1
        path.write_bytes(log)
        broker.start()
        yield Damaged(broker, data)


def test_the_start_says_what_it_cut_and_where_it_kept_it(damaged: Damaged) -> None:
    lines = [line for line in damaged.broker.log.splitlines() if "orders-0: cut " in line]
    assert len(lines) == 1
    assert "after offset 0" in lines[0]
    assert lines[0].endswith(f"kept in {FIRST}.cut-1")
    values = [seen.value for seen in read_all(damaged.broker.bootstrap_servers, ["orders"])]
    assert values[0] == "before"
    note = json.loads(damaged.file.with_name(damaged.file.name + ".json").read_text())
    assert (note["log"], note["expected_offset"], note["bytes"]) == ("orders-0", 1, damaged.file.stat().st_size)


def test_list_shows_what_can_be_had_back_while_the_broker_runs(damaged: Damaged) -> None:
    listed = run_fencepost("salvage", "list", "--data", damaged.data, "--json")
    assert listed.returncode == 0
    (file,) = json.loads(listed.stdout)["files"]
    assert (file["log"], file["kind"], file["expected_offset"]) == ("orders-0", "damaged", 1)
    assert [file[outcome] for outcome in ("plain", "committed", "aborted", "unknown")] == [2, 2, 2, 2]
    text = run_fencepost("salvage", "list", "--data", damaged.data).stdout
    assert "2 in no transaction, 2 committed, 2 aborted, 2 of unknown outcome" in " ".join(text.split())


def everything(servers: str, topic: str) -> list[Any]:
    """All committed messages, in order."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(TIMEOUT_S)) is not None and message.error() is None:
        found.append(message)
    consumer.close()
    return found


def test_restore_writes_what_was_committed_with_all_that_a_record_has(damaged: Damaged) -> None:
    broker = damaged.broker
    arguments = ("--topic", "copies", "--bootstrap", broker.bootstrap_servers)
    done = run_fencepost("salvage", "restore", damaged.file, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["partition"], report["records"]) == (0, 4)
    assert (report["aborted_left_out"], report["unknown_left_out"]) == (2, 2)
    found = everything(broker.bootstrap_servers, "copies")
    assert [message.value() for message in found] == [b"first", b"plain", None, b"True 0", b"True 1"]
    assert found[1].headers() == [("trace", b"\xff\x00"), ("none", None)]
    assert (found[1].key(), found[1].timestamp()[1]) == (b"k", WHEN_MS)
    assert found[2].key() == b"gone"

    done = run_fencepost("salvage", "restore", damaged.file, *arguments, "--unknown")
    assert done.returncode == 0, done.stderr
    assert "6 records were written to copies-0." in done.stdout
    assert "2 records of aborted transactions, 0 of unknown outcome" in done.stdout
    assert [message.value() for message in everything(broker.bootstrap_servers, "copies")][-2:] == [
        b"None 0",
        b"None 1",
    ]


def test_records_are_restored_to_any_kafka(damaged: Damaged, target: Target) -> None:
    """To another cluster, in both versions of transactions."""
    topic = f"restored-{target.name.replace(' ', '-')}"
    produce(target.servers, topic, {"value": b"first"})
    arguments = ("--topic", topic, "--bootstrap", target.servers)
    done = run_fencepost("salvage", "restore", damaged.file, *arguments)
    assert done.returncode == 0, done.stderr
    found = everything(target.servers, topic)
    assert [message.value() for message in found] == [b"first", b"plain", None, b"True 0", b"True 1"]
    assert found[1].timestamp()[1] == WHEN_MS


@pytest.mark.parametrize("command", ["show", "export"])
def test_a_file_without_record_batches_is_refused(command: str, tmp_path: Path) -> None:
    path = tmp_path / "passwd"
    path.write_text("root:x:0:0:root:/root:/bin/bash\n" * 100)
    done = run_fencepost("salvage", command, str(path))
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"there is no whole record batch in {path}" in done.stderr


def test_a_folder_without_side_files_says_so(tmp_path: Path) -> None:
    done = run_fencepost("salvage", "list", "--data", tmp_path, "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"files": [], "problems": []})
    assert "nothing was cut off" in done.stderr
    done = run_fencepost("salvage", "list", "--data", tmp_path / "none")
    assert (done.returncode, "cannot read" in done.stderr) == (1, True)
