"""An EndTxn that is late: its client has asked again, was answered, and is in its next transaction when it arrives.

With transaction version 1 both transactions have the same producer id and epoch, so no broker can tell the late request
from one that ends the second transaction: the hole that version 2 closes (KIP-890, part 2). The network here is slow,
and that is all; the clients are librdkafka, which has version 1 only, and our own, which takes an epoch for each
transaction with either version.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.client.admin.partitions import end_offset
from fencepost.client.client import KafkaClient
from fencepost.client.transaction import ProducerIdentity, Transaction
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import EndTxnRequest, EndTxnResponse, ProduceRequest
from tests.e2e.clients.confluent import initialise
from tests.e2e.conftest import Target
from tests.readers.reading import IMPATIENT, TIMEOUT_S, read_all
from tests.wire.proxy import Held, Proxy

# How long a client waits for an answer before it asks again, on another connection.
PATIENCE_MS = 1000


@pytest.fixture
def topic(target: Target, unique: Callable[[str], str]) -> str:
    name = unique("late")
    admin = AdminClient({"bootstrap.servers": target.servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    with KafkaClient({"bootstrap.servers": target.servers}) as client:
        end_offset(client, name, 0)  # Apache Kafka may not have made its leader yet.
    return name


@pytest.fixture
def proxy(target: Target) -> Iterator[Proxy]:
    with Proxy(target.servers) as proxy:
        yield proxy


def run_until(is_held: Held, commit: Callable[[], None]) -> None:
    """Commit; the first request is on its way when this returns, and the second has been answered."""
    failure: list[BaseException] = []

    def run() -> None:
        try:
            commit()
        except BaseException as e:
            failure.append(e)

    committing = threading.Thread(target=run)
    committing.start()
    is_held.wait_until_arrived()
    committing.join(TIMEOUT_S)
    assert not committing.is_alive(), "the client did not ask again"
    assert not failure, failure


def committed(target: Target, topic: str) -> list[str]:
    return [record.value for record in read_all(target.servers, [topic])]


def test_with_version_1_a_late_commit_commits_what_its_client_is_about_to_abort(
    target: Target, topic: str, proxy: Proxy, unique: Callable[[str], str]
) -> None:
    """What librdkafka does, on Apache Kafka as here: not a promise, but what users of such a client have to know."""
    config = {
        "bootstrap.servers": proxy.bootstrap_servers,
        "transactional.id": unique("late"),
        "socket.timeout.ms": PATIENCE_MS,
    }
    producer = Producer(IMPATIENT | config)
    initialise(producer)
    producer.begin_transaction()
    producer.produce(topic, b"first")
    assert producer.flush(TIMEOUT_S) == 0
    late = proxy.hold_request(EndTxnRequest)
    run_until(late, lambda: producer.commit_transaction(TIMEOUT_S))
    assert committed(target, topic) == ["first"]

    producer.begin_transaction()
    producer.produce(topic, b"second")
    assert producer.flush(TIMEOUT_S) == 0
    late.let_go()
    assert EndTxnResponse.decode(late.reply(), 4, 1)[0].error_code == errors.NONE, "taken for the second transaction's"
    assert committed(target, topic) == ["first", "second"], "the client did not ask for this commit"
    with pytest.raises(KafkaException):
        producer.abort_transaction(TIMEOUT_S)


def test_a_late_commit_is_refused_where_every_transaction_has_its_own_epoch(
    target: Target, topic: str, proxy: Proxy, unique: Callable[[str], str]
) -> None:
    """Version 2, and our own client with version 1 too."""
    with KafkaClient({"bootstrap.servers": proxy.bootstrap_servers, "request.timeout.ms": str(PATIENCE_MS)}) as client:
        owner = Transaction(client, unique("late"), 60_000)
        owner.init()
        assert owner.version == target.version
        write(client, owner, topic, b"first")
        late = proxy.hold_request(EndTxnRequest)
        run_until(late, owner.commit)
        assert committed(target, topic) == ["first"]

        write(client, owner, topic, b"second")
        late.let_go()
        version, header = (5, 5) if owner.version >= 2 else (4, 5)
        refusal = EndTxnResponse.decode(late.reply(), header, version)[0].error_code
        assert refusal in (errors.PRODUCER_FENCED, errors.INVALID_PRODUCER_EPOCH)
        owner.abort()
        assert committed(target, topic) == ["first"]

        write(client, owner, topic, b"third")
        owner.commit()
        assert committed(target, topic) == ["first", "third"]


def write(client: KafkaClient, owner: Transaction, topic: str, value: bytes) -> None:
    """Begin a transaction with one record."""
    who: ProducerIdentity = owner.begin()
    owner.add_partitions([(topic, 0)])
    batch = encode_batch([(None, value)], 1_700_000_000_000, who.producer_id, who.producer_epoch, 0, True)
    data = ProduceRequest.TopicProduceData(topic, partition_data=[ProduceRequest.PartitionProduceData(0, batch)])
    request = ProduceRequest(who.transactional_id, -1, 30_000, [data])
    reply = client.send(client.leader(topic, 0), request, 12 if owner.version >= 2 else 11)
    assert reply.responses[0].partition_responses[0].error_code == errors.NONE
