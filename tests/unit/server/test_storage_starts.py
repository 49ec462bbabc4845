"""What a start and a stop cost the disk: a count for each partition, and nothing that has not changed."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.cluster import BrokerAddress, Cluster
from fencepost.broker.config import parse
from fencepost.broker.metadata import logs_in
from fencepost.protocol.batch import encode_batch
from fencepost.server.storage import DataFolder

CHANGES = ("fsync", "fdatasync", "rename", "unlink", "truncate", "ftruncate", "pwrite")
NOW_MS = 1_700_000_000_000


def started(path: Path, partitions: int = 0) -> Cluster:
    """A broker without sockets on the folder `path`. With `partitions`, the topic `t` is made; they are empty."""
    cluster = Cluster(DataFolder(str(path), logs_in=logs_in), parse({}), random.Random(1))
    cluster.brokers = [BrokerAddress(1, "127.0.0.1", 9092)]
    cluster.start(NOW_MS)
    if partitions:
        cluster.create_topic("t", partitions, {}, NOW_MS)
    return cluster


def write_to_each(cluster: Cluster) -> None:
    for partition in cluster.topics["t"].partitions.values():
        partition.append_internal(encode_batch([(None, b"value")], NOW_MS))


def kill(cluster: Cluster) -> None:
    assert isinstance(cluster.storage, DataFolder)
    cluster.storage.abandon()


@contextmanager
def counted_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each of these functions of the operating system is called in the block."""
    calls: Counter[str] = Counter()

    def count(name: str) -> None:
        real = getattr(os, name)

        def counting(*given: Any, **more: Any) -> Any:
            calls[name] += 1
            return real(*given, **more)

        patched.setattr(os, name, counting)

    with monkeypatch.context() as patched:
        for name in (*CHANGES, "listdir", "open", "stat"):
            count(name)
        yield calls


def changes(calls: Counter[str]) -> dict[str, int]:
    return {name: calls[name] for name in CHANGES if calls[name]}


@pytest.mark.parametrize("is_written", [False, True])
def test_a_start_after_a_clean_stop_changes_as_little_with_many_partitions_as_with_one(
    is_written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for partitions in (1, 40):
        cluster = started(tmp_path / str(partitions), partitions)
        if is_written:
            write_to_each(cluster)
        cluster.stop()
        with counted_calls(monkeypatch) as calls:
            cluster = started(tmp_path / str(partitions))
        found.append(changes(calls))
        kill(cluster)
    # The stop's notes are removed, durably, and the lock gets the process id.
    assert found == [{"unlink": 2, "fsync": 1, "ftruncate": 1, "pwrite": 1}] * 2


def test_a_start_after_a_clean_stop_leaves_every_other_file_as_it_is(tmp_path: Path) -> None:
    def files() -> dict[str, tuple[int, int, bytes]]:
        paths = [path for path in tmp_path.rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()) for path in paths}

    cluster = started(tmp_path, 3)
    partition = cluster.topics["t"].partitions[1]
    partition.append_internal(encode_batch([(None, b"value")], NOW_MS))
    cluster.stop()
    before = files()
    kill(started(tmp_path))
    after = files()
    assert {Path(name).name for name in before.keys() - after.keys()} == {
        ".kafka_cleanshutdown",
        "clean-stop-checksums",
    }
    assert {Path(name).name for name, file in after.items() if before.get(name) != file} == {".lock"}


@pytest.mark.parametrize("is_written", [False, True])
def test_a_stop_without_any_change_writes_only_its_notes(
    is_written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = started(tmp_path, 40)
    if is_written:
        write_to_each(cluster)
    cluster.stop()
    cluster = started(tmp_path)
    with counted_calls(monkeypatch) as calls:
        cluster.stop()
    # One file and its name; the checksums are not synced.
    assert changes(calls) == {"fsync": 2, "rename": 2, "ftruncate": 1}


@pytest.mark.parametrize(
    ("is_written", "is_clean", "most"),
    [
        (False, True, {}),
        # The topic id, the leader epochs and the snapshot; whether it is a log, and the sizes of its files.
        (True, True, {"listdir": 1, "open": 3, "stat": 4}),
        (False, False, {}),
        # The `.log` instead of the snapshot, which is not written yet, and no index.
        (True, False, {"listdir": 1, "open": 3, "stat": 3}),
    ],
)
def test_a_start_reads_a_few_files_of_each_partition_and_none_of_an_empty_one(
    is_written: bool, is_clean: bool, most: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for partitions in (10, 50):
        cluster = started(tmp_path / str(partitions), partitions)
        if is_written:
            write_to_each(cluster)
        if is_clean:
            cluster.stop()
        else:
            kill(cluster)
        with counted_calls(monkeypatch) as calls:
            cluster = started(tmp_path / str(partitions))
        found.append(calls)
        kill(cluster)
    few, many = found
    for name in (*CHANGES, "listdir", "open", "stat"):
        assert (many[name] - few[name]) / 40 <= most.get(name, 0), name
