"""A shard of transactional ids: its log makes its state, and a log that breaks the table of legal moves is refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fencepost.broker.coordinator.txn_shard import TxnShard
from fencepost.broker.coordinator.txns import StateLogDamaged
from fencepost.machines.log.interface import LogConfig
from fencepost.machines.log.memory import MemoryStorage
from fencepost.machines.partition.partition import Partition
from fencepost.machines.txn.records import encode_key, encode_value
from fencepost.machines.txn.states import IllegalMove, Txn, TxnState
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.transaction_version import TV2
from tests.pure_broker import PureBroker

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, _ = TxnState
NOW_MS = 1_700_000_000_000


def a_shard(storage: MemoryStorage | None = None) -> TxnShard:
    log = (storage or MemoryStorage()).open_log("__transaction_state", 0, bytes(16), LogConfig())
    return TxnShard(Partition(log, "__transaction_state", 0), SimpleNamespace(transaction_version=TV2))


def a_txn(state: TxnState, transactional_id: str = "t1", epoch: int = 5) -> Txn:
    return Txn(transactional_id, 7, epoch, 60_000, state, updated_ms=NOW_MS)


def test_loading_gives_the_state_that_live_writing_left() -> None:
    storage = MemoryStorage()
    live = a_shard(storage)
    for state in (EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT, ONGOING):
        assert live.write(a_txn(state), NOW_MS) == errors.NONE
    for state in (EMPTY, DEAD):
        assert live.write(a_txn(state, "gone"), NOW_MS) == errors.NONE
    assert live.log.write([a_txn(EMPTY, "a"), a_txn(EMPTY, "b")], NOW_MS) == errors.NONE
    loaded = a_shard(storage)
    loaded.load()
    assert loaded.txns == live.txns
    assert loaded.txns.keys() == {"t1", "a", "b"}


def test_an_append_that_fails_changes_nothing() -> None:
    storage = MemoryStorage()
    shard = a_shard(storage)
    shard.write(a_txn(EMPTY), NOW_MS)
    storage.full = True
    assert shard.write(a_txn(ONGOING), NOW_MS) == errors.NOT_COORDINATOR
    assert shard.log.write([a_txn(ONGOING), a_txn(EMPTY, "t2")], NOW_MS) == errors.NOT_COORDINATOR
    assert shard.txns == {"t1": a_txn(EMPTY)}


def test_an_illegal_move_is_found_before_it_is_in_the_log() -> None:
    shard = a_shard()
    shard.write(a_txn(EMPTY), NOW_MS)
    with pytest.raises(IllegalMove, match="t1: Empty -> CompleteCommit is not a legal move"):
        shard.write(a_txn(COMPLETE_COMMIT), NOW_MS)
    assert shard.log.partition.log.end_offset == 1
    assert shard.txns == {"t1": a_txn(EMPTY)}


@pytest.mark.parametrize("in_one_batch", [True, False], ids=["one batch", "a batch each"])
def test_a_log_with_an_illegal_move_is_not_loaded_even_if_a_later_record_hides_it(in_one_batch: bool) -> None:
    shard = a_shard()
    written = [(encode_key("t1"), encode_value(a_txn(state), TV2)) for state in (EMPTY, COMPLETE_COMMIT, EMPTY)]
    for records in [written] if in_one_batch else [[record] for record in written]:
        shard.log.partition.append_internal(encode_batch(records, NOW_MS))
    with pytest.raises(IllegalMove, match="t1: Empty -> CompleteCommit is not a legal move"):
        shard.load()


def test_an_id_may_begin_anew_after_its_tombstone() -> None:
    storage = MemoryStorage()
    shard = a_shard(storage)
    for state in (EMPTY, ONGOING, PREPARE_ABORT, COMPLETE_ABORT, DEAD, EMPTY):
        assert shard.write(a_txn(state), NOW_MS) == errors.NONE
    loaded = a_shard(storage)
    loaded.load()
    assert loaded.txns == {"t1": a_txn(EMPTY)}


def test_a_record_of_a_later_version_is_skipped() -> None:
    shard = a_shard()
    shard.log.partition.append_internal(encode_batch([(encode_key("t1"), b"\0\x09" + bytes(40))], NOW_MS))
    shard.load()
    assert shard.txns == {}


def test_a_start_names_the_partition_of_a_damaged_state_log() -> None:
    broker = PureBroker()
    shard = broker.cluster.txns.shard_of("t1", broker.now_ms)
    for state in (EMPTY, COMPLETE_COMMIT):
        record = encode_key("t1"), encode_value(a_txn(state), TV2)
        shard.log.partition.append_internal(encode_batch([record], broker.now_ms))
    with pytest.raises(StateLogDamaged, match=r"__transaction_state-\d+: t1: Empty -> CompleteCommit.*\n\nhint: "):
        broker.restart()
