"""The log in memory, and what its storage keeps over simulated crashes."""

from __future__ import annotations

from collections.abc import Callable

from fencepost.machines.log.interface import AbortedTxn, LogConfig
from fencepost.machines.log.memory import SNAPSHOT_BATCHES, MemoryLog, MemoryStorage
from fencepost.protocol.batch import encode_batch, encode_marker, stamp
from tests.memory_storage import after_kill, after_power_loss

TOPIC_ID = bytes(range(16))


def put(log: MemoryLog, records: int = 1, timestamp: int = 0) -> bytes:
    base_offset = log.end_offset
    batch = stamp(encode_batch([(None, b"value")] * records, timestamp), base_offset, 0)
    log.append(batch, base_offset, base_offset + records - 1, timestamp)
    return batch


def test_a_scan_gives_headers_and_whole_control_batches() -> None:
    log = MemoryLog()
    data = put(log, 2)
    marker = encode_marker(1, 0, False, 0, 0, base_offset=2)
    log.append(marker, 2, 2, 0)
    assert [(found.address, found.size_bytes, found.head) for found in log.scan(1)] == [
        (0, len(data), data[:61]),
        (len(data), len(marker), marker),
    ]
    assert list(log.scan(3)) == []


def test_the_first_batch_that_reaches_a_timestamp_is_found() -> None:
    log = MemoryLog()
    first, _, third = put(log, timestamp=50), put(log, timestamp=20), put(log, timestamp=70)
    assert log.first_batch_not_before(20) == first
    assert log.first_batch_not_before(51) == third
    assert log.first_batch_not_before(71) is None


def test_aborted_transactions_are_found_by_the_range_that_was_read() -> None:
    log = MemoryLog()
    first, second = AbortedTxn(1, 0, 10, 5), AbortedTxn(2, 5, 20, 21)
    log.append_aborted(first)
    log.append_aborted(second)
    log.append_aborted(first)  # As a replay does.
    assert log.aborted(0, 100) == [first, second]
    assert log.aborted(11, 100) == [second]
    assert log.aborted(0, 5) == [first]
    assert log.aborted(21, 100) == []


def test_a_snapshot_is_wanted_after_many_batches() -> None:
    log = MemoryLog()
    for _ in range(SNAPSHOT_BATCHES):
        assert not log.wants_snapshot()
        put(log)
    assert log.wants_snapshot()
    log.save_snapshot(b"state")
    assert not log.wants_snapshot()
    assert log.load_snapshot() == (SNAPSHOT_BATCHES, b"state")


def test_kill_keeps_every_append_and_power_loss_what_was_synced() -> None:
    storage = MemoryStorage()
    log = storage.open_log("orders", 0, TOPIC_ID, LogConfig())
    assert isinstance(log, MemoryLog)
    put(log)
    log.append_aborted(AbortedTxn(1, 0, 0, 1))
    storage.sync([log], lambda: None)
    put(log)
    storage.save_metadata(b"{}")

    killed = after_kill(storage).open_log("orders", 0, TOPIC_ID, LogConfig())
    assert killed.end_offset == 2
    assert killed.aborted(0, 2) == []  # No snapshot covers it: a replay appends it again.
    lost = after_power_loss(storage)
    assert lost.open_log("orders", 0, TOPIC_ID, LogConfig()).end_offset == 1
    assert lost.load_metadata() == b"{}"


def test_a_topic_with_another_id_gets_a_new_log() -> None:
    storage = MemoryStorage()
    log = storage.open_log("orders", 0, TOPIC_ID, LogConfig())
    assert storage.open_log("orders", 0, TOPIC_ID, LogConfig()) is log
    assert storage.open_log("orders", 0, bytes(16), LogConfig()) is not log


def test_a_deferred_sync_covers_what_was_appended_before_it() -> None:
    due: list[Callable[[], None]] = []
    storage = MemoryStorage(later=due.append)
    log = storage.open_log("orders", 0, TOPIC_ID, LogConfig())
    assert isinstance(log, MemoryLog)
    put(log)
    done: list[bool] = []
    storage.sync([log], lambda: done.append(True))
    put(log)
    assert done == []
    due.pop()()
    assert done == [True]
    assert log.synced_offset == 1
