"""`fencepost txn` with brokers that do not answer, answer late, or are not Kafka: no all-clear, and no traceback."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from confluent_kafka import Producer

from fencepost.cli import main
from fencepost.client.admin import answers
from fencepost.client.client import KafkaClient
from fencepost.protocol import errors
from fencepost.testing import Broker
from tests.readers.reading import TIMEOUT_S

Answer = Callable[[int, int, int], bytes]
SOMETHING_ELSE = "answered ApiVersionsRequest with something else"
ASKED = "error: this user may not ask all questions\n\nhint: the warnings above say which\n"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce("orders", b"placed")
        producer.commit_transaction(TIMEOUT_S)
        yield broker


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(servers: str, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setenv("FENCEPOST_BOOTSTRAP", servers)
        capsys.readouterr()
        exit_code = main(["txn", *arguments])
        return exit_code, *capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("arguments", "api", "error", "warning"),
    [
        (["list"], "ListTransactions", "CLUSTER_AUTHORIZATION_FAILED", "broker 1 could not list"),
        (["list"], "DescribeTransactions", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "transaction `t`: "),
        (["lso"], "ListOffsets", "TOPIC_AUTHORIZATION_FAILED", "the offsets of orders-0 are unknown"),
        (["producers", "orders"], "DescribeProducers", "TOPIC_AUTHORIZATION_FAILED", "the producers of orders-0 are"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_a_missing_answer_is_not_an_all_clear(
    broker: Broker,
    run: Callable[..., tuple[int, str, str]],
    arguments: list[str],
    api: str,
    error: str,
    warning: str,
    form: list[str],
) -> None:
    with broker.faults.inject_error(api, error, times=None):
        exit_code, out, err = run(broker.bootstrap_servers, *arguments, *form)
    assert exit_code == 3
    assert f"warning: {warning}" in err
    assert err.endswith(ASKED)
    assert "none of" not in err
    assert "no reader waits" not in err
    if form:
        assert any(warning in problem for problem in json.loads(out)["problems"]), "the known part is shown"
    assert run(broker.bootstrap_servers, *arguments, *form)[0] == 0


def test_a_cluster_that_never_had_a_transaction_has_no_history_and_no_ids(
    run: Callable[..., tuple[int, str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    with Broker() as fresh:
        exit_code, _, err = run(fresh.bootstrap_servers, "history", "nosuch")
        assert (exit_code, err.splitlines()[0]) == (1, "error: no coordinator knows `nosuch`")
        exit_code, _, err = run(fresh.bootstrap_servers, "list", "--idle", "7d")
        assert (exit_code, err) == (0, "no transactional ids that this user can see\n")
        with KafkaClient({"bootstrap.servers": fresh.bootstrap_servers}) as client:
            assert client.refresh(None) == {}, "asking creates no topic"
        assert main(["topic", "list", "--json"]) == 0
        listed = capsys.readouterr()
        assert (json.loads(listed.out)["topics"], listed.err) == ([], "no topics\n")


def test_a_slow_broker_is_called_slow(
    broker: Broker, run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a hint about security, because the broker has answered before; with the time that it took."""
    monkeypatch.setattr(answers, "DEADLINE_S", 1.0)
    with broker.faults.drop_on("ListTransactions", times=None):
        exit_code, _, err = run(broker.bootstrap_servers, "list")
    assert exit_code == 3
    assert "given up after 1 s" in err
    assert "did not answer ListTransactionsRequest within 1.0 s" in err
    assert "security.protocol" not in err


# --- other listeners, and old brokers ---------------------------------------------------------------------


@contextmanager
def listener(answer: Answer) -> Iterator[str]:
    """A listener that answers each request with `answer` of its api key, version and correlation id."""

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError, struct.error):
            while True:
                (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
                reply = answer(*struct.unpack_from(">hhi", connection.recv(size, socket.MSG_WAITALL)))
                connection.sendall(struct.pack(">i", len(reply)) + reply)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                threading.Thread(target=serve, args=[connection], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        accepting.join()


def old_kafka(api_key: int, version: int, correlation_id: int) -> bytes:
    """A broker before Kafka 2.4, the only one of its cluster, without topics."""
    if api_key == 18 and version > 2:
        return struct.pack(">ihi", correlation_id, errors.UNSUPPORTED_VERSION, 0)
    if api_key == 18:
        return struct.pack(">ihi6h", correlation_id, errors.NONE, 2, 3, 0, 1, 18, 0, 2)
    assert (api_key, version) == (3, 1)
    empty = struct.pack(">i", 0)
    return struct.pack(">i", correlation_id) + empty + struct.pack(">i", -1) + empty


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda *asked: struct.pack(">ihi3h", asked[2], 35, 1, 18, 0, 2), "refused ApiVersions: UNSUPPORTED_VERSION"),
        (lambda *asked: b"\0\0\0\7hello", SOMETHING_ELSE),
        (lambda *asked: struct.pack(">i", asked[2]) + b"hello", SOMETHING_ELSE),
        (lambda *asked: b"", SOMETHING_ELSE),
    ],
    ids=["refuses", "another-reply", "not-the-message", "nothing"],
)
def test_a_port_that_answers_with_something_else_is_an_error_with_a_hint(
    run: Callable[..., tuple[int, str, str]], answer: Answer, said: str
) -> None:
    with listener(answer) as address:
        exit_code, out, err = run(address, "list")
    assert (exit_code, out) == (3, "")
    assert f"{address} {said}" in err
    assert "\n\nhint: is this " in err


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP\n\nhint: this is the port of a web server, not a listener of a"),
        (b"\x15\x03\x03\0\2\2\x46", "TLS\n\nhint: this port wants security.protocol=SSL or SASL_SSL"),
    ],
    ids=["http", "tls"],
)
def test_a_server_of_another_protocol_is_named(
    run: Callable[..., tuple[int, str, str]], reply: bytes, said: str
) -> None:
    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as server:
        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        exit_code, _, err = run(address, "list")
        serving.join()
    assert exit_code == 3
    assert f"{address} answered with {said}" in err


def test_a_broker_before_kafka_2_4_is_asked_again_with_an_older_version(
    run: Callable[..., tuple[int, str, str]],
) -> None:
    with listener(old_kafka) as address, KafkaClient({"bootstrap.servers": address}) as client:
        assert client.any_broker().session.max_version(3) == 1
        assert client.refresh(None) == {}
        exit_code, _, err = run(address, "explain", "t")
        assert exit_code == 3
        assert err == (
            "error: the broker does not serve DescribeTransactionsRequest\n\n"
            "hint: `fencepost txn` needs Apache Kafka 3.0 or later\n"
        )
