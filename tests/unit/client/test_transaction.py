"""The owner of a transactional id, and which brokers keep a late write out of the next transaction."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.client import transaction
from fencepost.client.admin.offsets import OffsetToCommit
from fencepost.client.client import KafkaClient
from fencepost.client.connection import Disconnected
from fencepost.client.failures import Fenced
from fencepost.client.transaction import REST_S, Transaction, find_unverified, needs_new_epoch
from fencepost.protocol.messages import CreateTopicsRequest, EndTxnRequest, InitProducerIdRequest
from fencepost.protocol.schema import Message
from fencepost.protocol.transaction_version import TV1, TV2, TransactionVersion
from tests.pure_broker import PureBroker

ID, HOUR_S = "orders-sink", 3_600.0


class ClientInMemory(KafkaClient):
    """Of a broker without sockets, with whose clock it shares the time."""

    transaction_version = TV2

    def __init__(self) -> None:
        super().__init__({"bootstrap.servers": "127.0.0.1:9092"})
        self.broker_in_memory = PureBroker({"transactional.id.expiration.ms": "3600000"})
        self.broker_in_memory.call(CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("orders", 1, 1)]), 5)
        self.sent: list[type[Message]] = []
        self.replies_lost: type[Message] | None = None

    def brokers(self) -> dict[int, tuple[str, int]]:
        return {}

    def coordinator(self, key: str, key_type: int) -> Any:
        return None

    def send(self, connection: object, request: Message, at_most: int | None = None) -> Any:
        assert at_most is not None
        self.sent.append(type(request))
        response = self.broker_in_memory.call(request, at_most)
        if type(request) is self.replies_lost:
            raise Disconnected("the connection ended before the reply")
        return response

    def clock(self) -> float:
        return self.broker_in_memory.now_ms / 1000

    def rest(self, seconds: float) -> None:
        self.broker_in_memory.advance(round(seconds * 1000))
        self.sent.clear()


def started(client: ClientInMemory, version: TransactionVersion) -> Transaction:
    owner = Transaction(client, ID, 60_000, at_most=version, clock=client.clock)
    owner.init()
    return owner


def write(owner: Transaction) -> None:
    owner.begin()
    owner.commit_offsets("readers", [OffsetToCommit("orders", 0, 7)])


@pytest.mark.parametrize("version", [TV1, TV2])
def test_a_new_epoch_is_asked_for_though_the_abort_before_it_is_never_answered(
    version: TransactionVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "DEFAULT_DEADLINE_S", 0.0)
    client = ClientInMemory()
    owner = started(client, version)
    write(owner)
    client.replies_lost = EndTxnRequest
    before = owner.identity
    assert owner.renew() > before
    client.replies_lost = None
    write(owner)
    owner.commit()


def test_an_owner_that_rested_until_its_id_was_forgotten_writes_under_a_new_producer_id() -> None:
    client = ClientInMemory()
    owner = started(client, TV2)
    write(owner)
    owner.commit()
    before = owner.identity
    client.rest(3 * HOUR_S)
    write(owner)
    owner.commit()
    assert owner.identity.producer_id != before.producer_id


def test_an_owner_that_rested_learns_before_it_writes_that_its_id_has_another_owner() -> None:
    client = ClientInMemory()
    owner = started(client, TV2)
    client.rest(REST_S)
    started(client, TV2)
    with pytest.raises(Fenced):
        owner.begin()


def test_a_busy_owner_asks_for_no_epoch_between_its_transactions() -> None:
    client = ClientInMemory()
    owner = started(client, TV2)
    for _ in range(3):
        client.rest(REST_S - 1)
        write(owner)
        owner.commit()
        assert InitProducerIdRequest not in client.sent


def test_transaction_version_1_needs_a_new_epoch_for_each_transaction_and_version_2_after_a_rest() -> None:
    assert needs_new_epoch(TV1, 0.0)
    assert not needs_new_epoch(TV2, REST_S - 1)
    assert needs_new_epoch(TV2, REST_S)


def test_brokers_that_all_verify_writes_are_safe() -> None:
    assert find_unverified({1: 5, 2: 4}, {1: "true", 2: "true"}, False) is None


@pytest.mark.parametrize("is_verified", [False, True])
def test_one_broker_that_does_not_verify_writes_is_named_whatever_the_user_says(is_verified: bool) -> None:
    said = find_unverified({1: 5, 2: 5, 3: 5}, {1: "true", 2: "true", 3: "false"}, is_verified)
    assert said is not None
    assert said.startswith("broker 3 has transaction.partition.verification.enable=false")
    assert "hint: set transaction.partition.verification.enable=true on every broker" in said


def test_one_broker_that_is_too_old_to_verify_is_named_with_its_version() -> None:
    assert "broker 2 serves AddPartitionsToTxn up to v3" in (
        find_unverified({1: 5, 2: 3}, {1: "true", 2: None}, True) or ""
    )


def test_a_setting_that_a_broker_hides_has_to_come_from_the_user() -> None:
    said = find_unverified({1: 5}, {1: None}, False) or ""
    assert "broker 1 does not show transaction.partition.verification.enable" in said
    assert "fencepost.transaction.partition.verification.enable=true" in said
    assert find_unverified({1: 5}, {1: None}, True) is None
