"""The guide on backups, as a user follows it: copy, check the copy, restore it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fencepost.protocol import errors
from fencepost.testing import Broker
from tests.command_line import run_fencepost
from tests.e2e.test_recovery import create_topic
from tests.readers.reading import committed_offsets, read_all
from tests.wire.tv2_client import Tv2Client

VALUES = [f"value {number}" for number in range(20)]


class Backup(NamedTuple):
    copy: Path
    client: Tv2Client
    late_client: Tv2Client


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backup]:
    """A copy of a stopped broker's folder, a client that went on after the copy was made, and one that began then."""
    data, copy = tmp_path_factory.mktemp("backup") / "data", tmp_path_factory.mktemp("backup") / "copy"
    with Broker(data=data) as broker:
        create_topic(broker, "orders")
        client = Tv2Client(broker.bootstrap_servers, "orders-1")
        client.init()
        for value in VALUES:
            assert client.produce({("orders", 0): [value]}) == errors.NONE
            assert client.end(True) == errors.NONE
        broker.stop()
        shutil.copytree(data, copy)
        broker.start()
        assert client.produce({("orders", 0): ["after the copy"]}) == errors.NONE
        late_client = Tv2Client(broker.bootstrap_servers, "orders-2")
        late_client.init()
        yield Backup(copy, client, late_client)


def copied(backup: Backup, tmp_path: Path) -> Path:
    return Path(shutil.copytree(backup.copy, tmp_path / "data"))


def said_to_be_restored(data: Path) -> Path:
    (data / ".kafka_cleanshutdown").unlink()
    (data / "boot-id").write_text("restored")
    return data


def test_a_good_copy_is_whole(backup: Backup) -> None:
    done = run_fencepost("salvage", "check", "--data", backup.copy, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["missing"], found["damaged"]) == ([], [])
    assert found["batches"] >= 2 * len(VALUES)


def test_a_copy_that_lacks_a_file_or_a_byte_is_found(backup: Backup, tmp_path: Path) -> None:
    data = copied(backup, tmp_path)
    log = data / "orders-0" / f"{0:020d}.log"
    content = log.read_bytes()
    log.write_bytes(content[:100] + b"\xff" + content[101:])
    done = run_fencepost("salvage", "check", "--data", data)
    assert done.returncode == 1
    assert f"{log}: position 75: crc is" in " ".join(done.stdout.split())
    assert "0 incomplete logs, 1 damaged file\n" in done.stderr
    log.unlink()
    done = run_fencepost("salvage", "check", "--data", data)
    assert done.returncode == 1
    assert "orders-0: there is no .log file; the clean stop left" in " ".join(done.stdout.split())
    done = run_fencepost("salvage", "check", "--data", tmp_path)
    assert (done.returncode, "is not a data folder" in done.stderr) == (1, True)


def test_a_restored_copy_serves_what_was_copied(backup: Backup, tmp_path: Path) -> None:
    with Broker(data=copied(backup, tmp_path)) as broker:
        assert [seen.value for seen in read_all(broker.bootstrap_servers, ["orders"])] == VALUES
        assert committed_offsets(broker.bootstrap_servers, "reader", "orders") == {}


def test_clients_that_went_on_after_the_copy_are_fenced_if_the_copy_says_so(backup: Backup, tmp_path: Path) -> None:
    with Broker(data=said_to_be_restored(copied(backup, tmp_path))) as broker:
        client = backup.client.moved_to(broker.bootstrap_servers)
        assert client.produce({("orders", 0): ["continued"]}) == errors.INVALID_PRODUCER_EPOCH
        client.init()
        assert client.produce({("orders", 0): ["anew"]}) == errors.NONE
        assert client.end(True) == errors.NONE
        assert [seen.value for seen in read_all(broker.bootstrap_servers, ["orders"])] == [*VALUES, "anew"]


def test_no_producer_id_of_the_time_after_the_copy_is_given_out_again(backup: Backup, tmp_path: Path) -> None:
    with Broker(data=said_to_be_restored(copied(backup, tmp_path))) as broker:
        for transactional_id in ("orders-1", "orders-2", "orders-3"):
            client = Tv2Client(broker.bootstrap_servers, transactional_id)
            client.init()
            assert client.producer_id > backup.late_client.producer_id
        late_client = backup.late_client.moved_to(broker.bootstrap_servers)
        assert late_client.produce({("orders", 0): ["continued"]}) == errors.INVALID_PRODUCER_EPOCH
