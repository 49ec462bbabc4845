"""No producer id is given out twice, also if the data folder is a copy from before."""

from __future__ import annotations

from fencepost.broker.controller import PRODUCER_ID_BLOCK, first_producer_id_after_loss
from fencepost.machines.log.memory import MemoryStorage
from fencepost.protocol import errors
from fencepost.protocol.messages import EndTxnRequest, InitProducerIdRequest
from tests.memory_storage import after_kill
from tests.pure_broker import START_MS, PureBroker


def register(broker: PureBroker, transactional_id: str | None) -> int:
    reply = broker.call(InitProducerIdRequest(transactional_id, 60_000), version=4)
    assert reply.error_code == errors.NONE
    return int(reply.producer_id)


def restored(copy: MemoryStorage) -> MemoryStorage:
    """As the guide on backups says: the start is to be one after a power loss."""
    storage = after_kill(copy)
    storage.may_have_lost_appends = True
    return storage


def test_a_copy_that_is_restored_twice_gives_out_no_producer_id_again() -> None:
    broker = PureBroker()
    given = {register(broker, None)}
    copy = after_kill(broker.storage)
    for _ in range(3):
        broker.advance(1)
        given_now = [register(broker, None) for _ in range(PRODUCER_ID_BLOCK + 1)]
        assert not given & set(given_now)
        given |= set(given_now)
        broker.restart(restored(copy))


def test_a_producer_of_the_lost_time_is_fenced_and_not_mistaken_for_its_successor() -> None:
    broker = PureBroker()
    register(broker, "other")
    copy = after_kill(broker.storage)
    broker.restart()
    old = register(broker, "t1")
    broker.advance(1)
    broker.restart(restored(copy))
    assert register(broker, "t1") > old
    assert broker.call(EndTxnRequest("t1", old, 0, True), version=4).error_code == errors.PRODUCER_FENCED


def test_a_new_document_in_place_of_a_lost_one_gives_out_no_producer_id_again() -> None:
    broker = PureBroker()
    old = register(broker, "t1")
    empty = MemoryStorage()
    empty.may_have_lost_appends = True
    broker.restart(empty)
    new = register(broker, "t2")
    assert new == first_producer_id_after_loss(0, START_MS) > old
    assert broker.call(EndTxnRequest("t1", old, 0, True), version=4).error_code == errors.PRODUCER_FENCED
    broker.restart()
    assert register(broker, "t3") > new


def test_the_first_producer_id_of_a_new_cluster_is_zero() -> None:
    assert register(PureBroker(), None) == 0


def test_a_clock_that_was_set_back_gives_out_no_claimed_producer_id() -> None:
    assert first_producer_id_after_loss(5000, 0) == 5000


def test_producer_ids_stay_exact_in_json() -> None:
    century_ms = 100 * 366 * 86_400_000
    assert first_producer_id_after_loss(0, START_MS + century_ms) < 1 << 53
