"""Listeners with TLS: who may connect, which address they get, new certificates, and half-open handshakes."""

from __future__ import annotations

import os
import resource
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from fencepost.client.client import KafkaClient
from fencepost.client.failures import AuthenticationFailed
from fencepost.protocol.messages import (
    ApiVersionsRequest,
    DescribeClusterRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from fencepost.testing import Broker, BrokerFailed
from tests.certificates import Authority
from tests.wire.raw_client import Closed, RawClient, encode_frame

HOSTS = ("127.0.0.1", "localhost")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[Broker]:
    store = authority.issue("broker", "CN=broker", HOSTS)
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,MUTUAL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL",
        "ssl.keystore.location": store.path,
        "ssl.truststore.location": authority.path,
        "listener.name.mutual.ssl.client.auth": "required",
    }
    with Broker(settings=settings) as broker:
        yield broker


def test_a_transaction_runs_over_tls(broker: Broker, authority: Authority) -> None:
    client = {
        "bootstrap.servers": broker.listeners["SSL"],
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.path),
    }
    producer = Producer({**client, "transactional.id": "orders-1"})
    producer.init_transactions(60)
    producer.begin_transaction()
    values = [os.urandom(1000) + bytes(200_000), b"placed", *(b"%d" % i for i in range(2000))]
    for value in values:
        producer.produce("orders", value)
    producer.commit_transaction(60)
    consumer = Consumer({**client, "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    read: list[bytes | None] = []
    while len(read) < len(values):
        messages = consumer.consume(len(values) - len(read), 60)
        assert messages
        read += [message.value() for message in messages]
    consumer.close()
    assert read == values


def test_a_client_that_reads_late_gets_every_answer_in_order(broker: Broker, authority: Authority) -> None:
    """The broker stops reading while answers are unsent, and goes on where it stopped."""
    host, _, port = broker.listeners["SSL"].rpartition(":")
    context = ssl.create_default_context(cafile=str(authority.path))
    count = 20_000
    frames = (encode_frame(ApiVersionsRequest("test", "1"), 3, number) for number in range(count))
    requests = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=host)
    with socket.create_connection((host, int(port)), timeout=60) as connection:

        def receive() -> None:
            data = connection.recv(1 << 16)
            assert data, "the broker closed the connection"
            incoming.write(data)

        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                connection.sendall(outgoing.read())
                receive()
        tls.write(requests)
        sending = Thread(target=connection.sendall, args=(outgoing.read(),))
        sending.start()
        answers = bytearray()
        found: list[int] = []
        while len(found) < count:
            try:
                answers += tls.read(1 << 16)
            except ssl.SSLWantReadError:
                receive()
            pos = 0
            while len(answers) - pos >= 8 and len(answers) - pos >= 4 + int.from_bytes(answers[pos : pos + 4], "big"):
                found.append(int.from_bytes(answers[pos + 4 : pos + 8], "big"))
                pos += 4 + int.from_bytes(answers[pos : pos + 4], "big")
            del answers[:pos]
        sending.join()
    assert found == list(range(count))


def test_clients_are_given_the_addresses_of_the_listener_that_they_use(broker: Broker, authority: Authority) -> None:
    for name, address in broker.listeners.items():
        if name == "MUTUAL":
            continue
        context = ssl.create_default_context(cafile=str(authority.path)) if name == "SSL" else None
        host, _, port = address.rpartition(":")
        with RawClient(host, int(port), tls=context) as client:
            found = [(b.host, b.port) for b in client.call(MetadataRequest(topics=[]), 9).brokers]
            found += [(b.host, b.port) for b in client.call(DescribeClusterRequest(), 1).brokers]
            reply = client.call(FindCoordinatorRequest(key="orders-1", key_type=1), 2)
            found.append((reply.host, reply.port))
        assert found == [(host, int(port))] * 3


def test_a_wrong_host_name_is_refused_by_the_client(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": authority.issue("broker", "CN=broker", ("broker.example.com",)).path,
    }
    with Broker(settings=settings) as broker:
        client: dict[str, Any] = {"bootstrap.servers": broker.listeners["SSL"], "security.protocol": "SSL"}
        client["ssl.ca.location"] = str(authority.path)
        with pytest.raises(AuthenticationFailed, match="not to be trusted"):
            KafkaClient(client).any_broker()
        KafkaClient({**client, "ssl.endpoint.identification.algorithm": "none"}).any_broker()
        failed: list[str] = []
        client |= {"error_cb": lambda error: failed.append(str(error)), "log_level": 0}
        admin = AdminClient(client)
        deadline = time.monotonic() + 60
        while not any("SSL handshake failed" in reason for reason in failed):
            assert time.monotonic() < deadline, failed
            admin.poll(0.1)


def test_a_client_without_a_certificate_or_with_a_strangers_is_refused(
    broker: Broker, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "Stranger").issue("mallory", "CN=alice")
    known = authority.issue("alice", "CN=alice,O=Example")
    host, _, port = broker.listeners["MUTUAL"].rpartition(":")
    for store in (None, stranger):
        context = ssl.create_default_context(cafile=str(authority.path))
        if store is not None:
            context.load_cert_chain(store.certificate, store.key)
        with pytest.raises(OSError, match=r"alert|reset|EOF"), RawClient(host, int(port), tls=context) as client:
            client.call(MetadataRequest(topics=[]), 9)
    context = ssl.create_default_context(cafile=str(authority.path))
    context.load_cert_chain(known.certificate, known.key)
    with RawClient(host, int(port), tls=context) as client:
        assert client.call(MetadataRequest(topics=[]), 9).brokers
    with RawClient(host, int(port)) as client, pytest.raises(Closed):
        client.call(MetadataRequest(topics=[]), 9)


def test_new_certificates_are_used_without_a_restart(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "Old"), Authority(tmp_path, "New")
    store = tmp_path / "broker.pem"
    store.write_bytes(old.issue("first", "CN=broker", HOSTS).path.read_bytes())
    with Broker(settings={"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": store}) as broker:
        host, _, port = broker.listeners["SSL"].rpartition(":")
        with RawClient(host, int(port), tls=ssl.create_default_context(cafile=str(old.path))) as before:
            store.write_bytes(b"nonsense")
            await_line(broker, "the certificates have changed, and the old ones stay in use", int(port), old)
            store.write_bytes(new.issue("second", "CN=broker", HOSTS).path.read_bytes())
            await_line(broker, "the certificates have changed: new connections use", int(port), old)
            with RawClient(host, int(port), tls=ssl.create_default_context(cafile=str(new.path))) as after:
                assert after.call(MetadataRequest(topics=[]), 9).brokers
            assert before.call(MetadataRequest(topics=[]), 9).brokers, "open connections go on"


def await_line(broker: Broker, line: str, port: int, authority: Authority) -> None:
    """Connect until the broker has looked at its files again."""
    deadline = time.monotonic() + 60
    while line not in broker.log:
        assert time.monotonic() < deadline, broker.log
        context = ssl.create_default_context(cafile=str(authority.path))
        with suppress(ssl.SSLError):  # The new certificate may be there.
            RawClient("127.0.0.1", port, tls=context).close()
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "a listener with TLS needs ssl.keystore.location"),
        (
            {"ssl.keystore.location": "/no/such/file"},
            "ssl.keystore.location=/no/such/file cannot be used: No such file",
        ),
        ({"ssl.keystore.type": "JKS"}, "ssl.keystore.type=JKS is not PEM"),
    ],
)
def test_certificates_that_cannot_be_used_are_refused_at_the_start(settings: dict[str, str], said: str) -> None:
    with (
        pytest.raises(BrokerFailed, match="hint: ") as failed,
        Broker(settings={"listeners": "SSL://127.0.0.1:0", **settings}),
    ):
        pass
    assert said in str(failed.value)


def test_an_encrypted_key_needs_its_password_which_no_log_shows(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    store = authority.issue("broker", "CN=broker", HOSTS, password="open sesame")
    settings: dict[str, object] = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": store.path}
    with pytest.raises(BrokerFailed, match=r"ssl\.key\.password decrypts the key"), Broker(settings=settings):
        pass
    with Broker(settings={**settings, "ssl.key.password": "open sesame"}) as broker:
        port = int(broker.listeners["SSL"].rpartition(":")[2])
        context = ssl.create_default_context(cafile=str(authority.path))
        with RawClient("127.0.0.1", port, tls=context) as client:
            assert client.call(MetadataRequest(topics=[]), 9).brokers
        assert "open sesame" not in broker.log
        assert "ssl.key.password=[hidden]" in broker.log


def test_ten_thousand_half_open_handshakes_do_not_hurt_other_clients(broker: Broker, authority: Authority) -> None:
    """A third of them sends nothing, a third one byte, a third a whole ClientHello and nothing more."""
    hello = client_hello(authority)
    plain = RawClient("127.0.0.1", broker.port)
    host, _, port = broker.listeners["SSL"].rpartition(":")
    before_bytes = resident_bytes(broker)
    slowest = 0.0
    with ExitStack() as held, plain:
        held.enter_context(room_for_files(12_000))
        # Fewer where the machine allows fewer open files.
        for number in range(min(10_000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 500)):
            half_open = held.enter_context(socket.create_connection((host, int(port)), timeout=60))
            if number % 3:
                half_open.sendall(hello if number % 3 == 2 else hello[:1])
            if number % 100 == 0:
                began = time.monotonic()
                plain.call(MetadataRequest(topics=[]), 9)
                slowest = max(slowest, time.monotonic() - began)
        with RawClient(host, int(port), tls=ssl.create_default_context(cafile=str(authority.path))) as client:
            assert client.call(MetadataRequest(topics=[]), 9).brokers
        grown_bytes = resident_bytes(broker) - before_bytes
    assert grown_bytes < 250 << 20
    assert slowest < 5


def resident_bytes(broker: Broker) -> int:
    size: int = psutil.Process(broker.pid).memory_info().rss
    return size


@contextmanager
def room_for_files(count: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], min(count, limits[1])), limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def client_hello(authority: Authority) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=str(authority.path))
    tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()
