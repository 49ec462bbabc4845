"""The tap among bad input, brokers that go away or move, TLS and logins; and its command."""

from __future__ import annotations

import json
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from fencepost.cli import main
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    EndTxnRequest,
    FetchRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)
from fencepost.tap.link import Link
from fencepost.tap.proxy import Unreached
from fencepost.testing import Broker, Tap
from tests.certificates import Authority
from tests.command_line import start_fencepost
from tests.readers.reading import TIMEOUT_S, connect
from tests.wire.raw_client import Closed, RawClient, encode_frame

Unique = Callable[[str], str]
BEAT = HeartbeatRequest("g", -1, "m")


@pytest.fixture
def tap(broker: Broker) -> Iterator[Tap]:
    with Tap(broker.bootstrap_servers) as tap:
        yield tap


def commit_one(servers: str, transactional_id: str, topic: str, **settings: str) -> None:
    config = {"bootstrap.servers": servers, "transactional.id": transactional_id, "client.id": "svc", "log_level": 0}
    producer = Producer(config | {name.replace("_", "."): value for name, value in settings.items()})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, "placed")
    producer.commit_transaction(TIMEOUT_S)


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline, f"never so: {what}"
        time.sleep(0.01)


# --- what passes --------------------------------------------------------------------------------------------


def produce(topic: str, size: int, acks: int = -1) -> ProduceRequest:
    data = [ProduceRequest.PartitionProduceData(0, encode_batch([(b"k", bytes(size))], 1))]
    return ProduceRequest(None, acks, 30_000, [ProduceRequest.TopicProduceData(topic, partition_data=data)])


def fetch(topic: str) -> FetchRequest:
    partition = FetchRequest.FetchPartition(0, -1, 0, partition_max_bytes=1 << 26)
    return FetchRequest(
        max_wait_ms=0, max_bytes=1 << 26, topics=[FetchRequest.FetchTopic(topic, partitions=[partition])]
    )


def test_fetches_are_shown_with_their_isolation_level_if_wanted(broker: Broker, unique: Unique) -> None:
    topic = unique("topic")
    broker.create_topic(topic)
    with Tap(broker.bootstrap_servers, fetches=True) as tap, connect(tap.bootstrap_servers) as client:
        client.call(produce(topic, 99_000), 9)
        for isolation_level in (0, 1):
            request = fetch(topic)
            request.isolation_level = isolation_level
            client.call(request, 12)
        asked, answered = tap.events[0::2], tap.events[1::2]
        assert [(event.api, event.about) for event in asked] == [
            ("Fetch", {"isolation": isolation, "offsets": {f"{topic}-0": 0}})
            for isolation in ("read_uncommitted", "read_committed")
        ]
        assert answered[1].about["partitions"][f"{topic}-0"]["last_stable_offset"] == 1


# --- bad input, and a broker that goes away -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "which is HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "begin a TLS handshake"),
        (b"\xff\xff\xff\xff", "a frame claims -1 bytes"),
        (b"\0\0\0\5hello", "a request of 5 bytes, expected at least 10"),
    ],
)
def test_a_client_that_sends_no_frame_is_cut_off_with_a_reason(tap: Tap, sent: bytes, said: str) -> None:
    with connect(tap.bootstrap_servers) as client:
        client._socket.sendall(sent)
        assert client._socket.recv(1) == b""
    wait_until(lambda: any(said in remark for remark in tap.remarks), said)
    with connect(tap.bootstrap_servers) as client:
        assert client.call(BEAT, 4).error_code == errors.UNKNOWN_MEMBER_ID


class Impostor:
    """A server that answers each connection with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        try:
            while True:
                client, _ = self._listener.accept()
                with client:
                    if client.recv(1):
                        client.sendall(self.answer)
                        client.recv(1 << 16)
        except OSError:
            pass

    def __enter__(self) -> Impostor:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "which is HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "an alert of TLS"),
        (b"\0\0\0\4\0\0\0\x63", "answers request 99, expected 1"),
    ],
)
def test_a_broker_that_answers_nonsense_is_cut_off_with_a_reason(answer: bytes, said: str) -> None:
    with Impostor(answer) as impostor, Tap(impostor.address) as tap:
        with connect(tap.bootstrap_servers) as client, pytest.raises(Closed):
            client.call(BEAT, 4)
        wait_until(lambda: any(said in remark for remark in tap.remarks), said)


@pytest.mark.parametrize(
    ("host", "port"), [("a..b", 9092), ("x" * 64 + ".org", 9092), ("a\0b", 9092), ("127.0.0.1", 70_000)]
)
def test_a_client_of_a_broker_whose_address_cannot_be_is_cut_off_with_a_reason(host: str, port: int) -> None:
    body = MetadataResponse(brokers=[MetadataResponse.MetadataResponseBroker(7, host, port)]).encode(12)
    answer = struct.pack(">ii", 5 + len(body), 1) + b"\0" + body
    with Impostor(answer) as impostor, Tap(impostor.address) as tap:
        with connect(tap.bootstrap_servers) as client:
            [node] = client.call(MetadataRequest([]), 12).brokers
        with RawClient(node.host, node.port) as client:
            assert client._socket.recv(1) == b""
        assert f"cannot connect to {host}:{port}: " in tap.remarks[-1]


def test_a_version_of_metadata_that_is_too_new_passes_with_a_warning() -> None:
    answer = b"\0\0\0\6\0\0\0\1??"
    with Impostor(answer) as impostor, Tap(impostor.address) as tap, connect(tap.bootstrap_servers) as client:
        assert client.send_frame(struct.pack(">hhih", 3, 99, 1, -1)) == answer[4:]
        [remark] = tap.remarks
        assert remark.startswith("Metadata v99 is newer than this tap knows: its addresses stay as they are")


def test_what_follows_an_old_handshake_passes_undecoded() -> None:
    answer = b"any bytes at all"
    with Impostor(answer) as impostor, Tap(impostor.address) as tap, connect(tap.bootstrap_servers) as client:
        frame = struct.pack(">hhih", 17, 0, 1, -1) + b"\0\5PLAIN"
        client._socket.sendall(struct.pack(">i", len(frame)) + frame)
        assert client._read(len(answer)) == answer
        assert "logs in with SaslHandshake v0" in tap.remarks[0]


def test_what_is_sent_together_with_an_old_handshake_arrives_unchanged() -> None:
    head = struct.pack(">hhih", 17, 0, 1, -1) + b"\0\5PLAIN"
    sent = struct.pack(">i", len(head)) + head + b"\0\0\0\x09\0user\0pas" + b"\xff" * 5
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Tap(f"127.0.0.1:{listener.getsockname()[1]}") as tap,
        connect(tap.bootstrap_servers) as client,
    ):
        listener.accept()[0].close()  # The tap has tried whether the address answers.
        client._socket.sendall(sent)
        behind, _ = listener.accept()
        with behind:
            assert behind.recv(len(sent), socket.MSG_WAITALL) == sent
            behind.sendall(b"any bytes at all")
            assert client._read(16) == b"any bytes at all"


def test_a_client_that_closes_only_its_sending_half_gets_its_replies(tap: Tap) -> None:
    with connect(tap.bootstrap_servers) as client, tap.faults.delay_on("Heartbeat", 50, at="reply"):
        frames = [encode_frame(BEAT, 4, number) for number in (1, 2)]
        client._socket.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
        client._socket.shutdown(socket.SHUT_WR)
        for number in (1, 2):
            size = struct.unpack(">i", client._read(4))[0]
            assert struct.unpack_from(">i", client._read(size))[0] == number
        assert client._socket.recv(1) == b"", "then the connection ends"
    wait_until(lambda: not tap._tap.links, "the tap has no client")


def test_new_clients_reach_the_bootstrap_server_if_its_node_is_announced_where_nothing_listens() -> None:
    with socket.socket() as nothing_listens, Impostor(b"") as impostor:
        nothing_listens.bind(("127.0.0.1", 0))
        host, _, port = impostor.address.rpartition(":")
        with Tap(impostor.address) as tap:
            for announced in (int(port), nothing_listens.getsockname()[1]):
                node = MetadataResponse.MetadataResponseBroker(7, host, announced)
                body = MetadataResponse(brokers=[node]).encode(12)
                impostor.answer = struct.pack(">ii", 5 + len(body), 1) + b"\0" + body
                for _ in range(2):
                    with connect(tap.bootstrap_servers) as client:
                        [found] = client.call(MetadataRequest([]), 12).brokers
                    assert f"{found.host}:{found.port}" == tap.bootstrap_servers


def test_a_broker_that_dies_closes_the_connections_of_its_clients_and_is_found_again(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, Tap(broker.bootstrap_servers) as tap:
        with connect(tap.bootstrap_servers) as client:
            assert client.call(InitProducerIdRequest("t", 60_000, -1, -1), 4).error_code == 0
            broker.faults.drop_on("EndTxn", at="request")
            frame = encode_frame(EndTxnRequest("t", 0, 0, True), 4, 7)
            client._socket.sendall(struct.pack(">i", len(frame)) + frame)
            wait_until(lambda: tap.events[-1].api == "EndTxn", "the tap has seen it")
            broker.kill()
            assert client._socket.recv(1) == b""
        wait_until(lambda: tap.events[-1].kind == "unanswered", "the tap says that there is no reply")
        with connect(tap.bootstrap_servers) as client, pytest.raises(Closed):
            client.call(BEAT, 4)
        assert "Connection refused" in tap.remarks[-1]
        broker.restart()
        commit_one(tap.bootstrap_servers, "t", "orders")
        assert [record.value for record in broker.read_committed("orders")] == [b"placed"]


def test_a_broker_that_moves_keeps_its_address_in_the_tap(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        second_port = reserved.getsockname()[1]
    first = Broker(data=tmp_path)
    first.start()
    servers = f"{first.bootstrap_servers},127.0.0.1:{second_port}"
    with Tap(servers) as tap:
        commit_one(tap.bootstrap_servers, "t", "orders")
        with connect(tap.bootstrap_servers) as client:
            [before] = client.call(MetadataRequest([]), 12).brokers
        first.stop()
        with Broker(data=tmp_path, port=second_port) as second:
            with connect(tap.bootstrap_servers) as client:
                [after] = client.call(MetadataRequest([]), 12).brokers
            assert (after.host, after.port) == (before.host, before.port)
            commit_one(tap.bootstrap_servers, "t", "orders")
            assert len(second.read_committed("orders")) == 2
            assert tap.events[-1].broker == second.bootstrap_servers


def test_a_client_that_does_not_read_does_not_fill_the_memory_of_the_tap(broker: Broker, unique: Unique) -> None:
    topic, count = unique("topic"), 150
    broker.create_topic(topic)
    process, address = start_tap("--bootstrap", broker.bootstrap_servers)
    with process, connect(address) as client, connect(address) as other:
        assert client.call(produce(topic, 900_000), 9).responses[0].partition_responses[0].error_code == 0
        size = len(client.send_frame(encode_frame(fetch(topic), 12)))
        frames = [encode_frame(fetch(topic), 12, number) for number in range(count)]
        client._socket.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
        for _ in range(50):
            assert other.call(BEAT, 4).error_code == errors.UNKNOWN_MEMBER_ID
        assert psutil.Process(process.pid).memory_info().rss < 80_000_000
        for number in range(count):
            assert struct.unpack(">i", client._read(4)) == (size,)
            assert struct.unpack_from(">i", client._read(size)) == (number,)
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)


def test_a_client_is_not_read_before_its_broker_is_reached() -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as silent,
        Tap(f"127.0.0.1:{silent.getsockname()[1]}") as tap,
    ):
        queue = [socket.socket() for _ in range(4)]  # When it is full, a connect gets no answer.
        for waiting in queue:
            waiting.setblocking(False)
            waiting.connect_ex(silent.getsockname())
        with connect(tap.bootstrap_servers) as client:
            sending = threading.Thread(target=send_all, args=(client._socket, bytes(64 << 20)))
            sending.start()
            wait_until(lambda: bool(tap._tap.links), "the tap has a client")
            [link] = tap._tap.links
            wait_until(lambda: bool(link.client.cutter._fed), "the first bytes came")
            assert not tap._thread.call(lambda: is_reading(link))
            assert (link.is_closed, link.broker.transport) == (False, None)
            client._socket.shutdown(socket.SHUT_RDWR)
            sending.join(TIMEOUT_S)
        for waiting in queue:
            waiting.close()


def send_all(to: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        to.sendall(data)


def is_reading(link: Link) -> bool:
    return link.client.transport is not None and link.client.transport.is_reading()


# --- TLS, and logins ------------------------------------------------------------------------------------------


def test_a_login_passes_through_and_the_tap_speaks_tls_with_the_cluster(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
        ),
        "ssl.keystore.location": authority.issue("broker", "CN=broker", ("127.0.0.1",)).path,
    }
    with Broker(settings=settings) as broker:
        (tmp_path / "password").write_text("secret")
        plain = ["--bootstrap", broker.listeners["PLAINTEXT"]]
        assert main(["user", "add", "alice", *plain, "--password-file", str(tmp_path / "password")]) == 0
        towards = {"security.protocol": "SSL", "ssl.ca.location": str(authority.path)}
        with Tap(broker.listeners["SASL_SSL"], settings=towards) as tap:
            for mechanism in ("PLAIN", "SCRAM-SHA-256"):
                commit_one(
                    tap.bootstrap_servers,
                    mechanism,
                    "orders",
                    security_protocol="SASL_PLAINTEXT",
                    sasl_mechanism=mechanism,
                    sasl_username="alice",
                    sasl_password="secret",
                )
            assert [e.error for e in tap.events if e.api == "EndTxn" and e.kind == "reply"] == ["NONE", "NONE"]
        with pytest.raises(Unreached, match="is not to be trusted"):
            Tap(broker.listeners["SASL_SSL"], settings={"security.protocol": "SSL"}).start()


# --- the command ----------------------------------------------------------------------------------------------


def start_tap(*arguments: str | Path, **given: int):  # type: ignore[no-untyped-def]
    process = start_fencepost("tap", "--listen", "127.0.0.1:0", *arguments, **given)
    assert process.stderr is not None
    ready = process.stderr.readline().strip()
    assert ready.startswith("ready "), ready
    return process, ready.removeprefix("ready ")


def test_the_command_prints_a_line_for_each_request_and_reply(broker: Broker, unique: Unique) -> None:
    txn = unique("txn")
    faults = ("--fault", "delay EndTxn 10ms", "--fault", "drop WriteTxnMarkers reply")
    process, address = start_tap("--bootstrap", broker.bootstrap_servers, *faults)
    with process:
        commit_one(address, txn, unique("topic"))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    ends = [line for line in out.splitlines() if " EndTxn " in line]
    assert len(ends) == 2
    assert f"svc  ->  EndTxn v1  {txn} " in ends[0]
    assert ends[0].endswith("  commit")
    assert "  <-  " in ends[1]
    assert "  NONE  " in ends[1]
    assert ends[1].endswith("  [delay 10 ms]")
    assert err.splitlines() == [
        "the fault 'delay EndTxn 10ms' struck 1 time",
        "the fault 'drop WriteTxnMarkers reply' struck nothing",
    ]


def test_the_command_writes_json_lines_to_a_file_with_tls_for_clients(
    broker: Broker, tmp_path: Path, unique: Unique
) -> None:
    authority = Authority(tmp_path)
    store = authority.issue("tap", "CN=tap", ("127.0.0.1",))
    file = tmp_path / "wire.jsonl"
    process, address = start_tap(
        *("--bootstrap", broker.bootstrap_servers, "--json", "--output", file, "--fetches"),
        *("--certificate", store.certificate, "--key", store.key),
    )
    with process:
        commit_one(address, "t", unique("topic"), security_protocol="SSL", ssl_ca_location=str(authority.path))
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (0, "")
    events = [json.loads(line) for line in file.read_text().splitlines()]
    [request, reply] = [event for event in events if event["api"] == "EndTxn"]
    assert (request["kind"], request["about"]) == ("request", {"committed": True})
    assert (reply["kind"], reply["error"], reply["transactional_id"]) == ("reply", "NONE", "t")
    assert reply["broker"] == broker.bootstrap_servers


def test_the_command_ends_when_the_reader_of_its_lines_has_gone(broker: Broker, unique: Unique) -> None:
    process, address = start_tap("--bootstrap", broker.bootstrap_servers)
    with process:
        assert process.stdout is not None
        process.stdout.close()
        with connect(address) as client, pytest.raises(Closed):
            while True:
                client.call(InitProducerIdRequest(unique("txn"), 60_000, -1, -1), 4)
        assert process.wait(TIMEOUT_S) == 141


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--fault", "dely EndTxn"], 2, "--fault: 'dely' is no action"),
        (["--listen", "9093"], 2, "9093 is not an address"),
        (["--certificate", "nosuch.pem"], 2, "--certificate nosuch.pem cannot be used"),
        (["--key", "nosuch.pem"], 2, "--key without --certificate"),
        (["--advertise", "tap.example.com:9093"], 2, "--advertise 'tap.example.com:9093' is not a host"),
        (["--advertise", ""], 2, "--advertise '' is not a host"),
        (["--output", "/nosuch/file"], 1, "cannot write to /nosuch/file"),
        (["--set", "security.protocol=nonsense"], 2, "security.protocol=NONSENSE is none of"),
        ([], 3, "cannot connect to 127.0.0.1:1: Connection refused"),
    ],
)
def test_a_mistake_in_the_command_is_explained(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tap", "--bootstrap", "127.0.0.1:1", "--listen", "127.0.0.1:0", *arguments]) == code
    err = capsys.readouterr().err
    assert said in err
    assert "hint: " in err
