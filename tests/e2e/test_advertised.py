"""A broker that clients reach at another address than the one it listens on."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, Producer

from fencepost.cli import main
from fencepost.protocol.messages import (
    DescribeClusterRequest,
    DescribeConfigsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from fencepost.testing import Broker
from tests.command_line import run_fencepost
from tests.wire.proxy import PortMapping
from tests.wire.raw_client import RawClient


def test_clients_work_through_a_port_mapping() -> None:
    with PortMapping() as mapping:
        outside = f"127.0.0.1:{mapping.port}"
        with Broker(settings={"advertised.listeners": f"PLAINTEXT://{outside}"}) as broker:
            assert broker.port != mapping.port, "the ready line has the address that the broker listens on"
            mapping.lead_to(broker.port)
            producer = Producer({"bootstrap.servers": outside, "transactional.id": "orders-1"})
            producer.init_transactions(60)
            producer.begin_transaction()
            producer.produce("orders", b"placed")
            producer.commit_transaction(60)
            consumer = Consumer(
                {"bootstrap.servers": outside, "group.id": "billing", "auto.offset.reset": "earliest"},
            )
            consumer.subscribe(["orders"])
            message = consumer.poll(60)
            assert message is not None
            assert message.value() == b"placed"
            consumer.close()


def test_every_answer_has_the_advertised_address() -> None:
    listener = "PLAINTEXT://broker.example.com:19092"
    with (
        Broker(settings={"advertised.listeners": listener}) as broker,
        RawClient(broker.host, broker.port) as client,
    ):
        found = [(b.host, b.port) for b in client.call(MetadataRequest(topics=[]), 9).brokers]
        found += [(b.host, b.port) for b in client.call(DescribeClusterRequest(), 1).brokers]
        for key_type in (0, 1):
            reply = client.call(FindCoordinatorRequest(key="orders-1", key_type=key_type), 2)
            found.append((reply.host, reply.port))
        assert found == [("broker.example.com", 19092)] * 4
        wanted = DescribeConfigsRequest.DescribeConfigsResource(4, "1", ["advertised.listeners"])
        (described,) = client.call(DescribeConfigsRequest(resources=[wanted]), 4).results
        assert [(config.name, config.value) for config in described.configs] == [("advertised.listeners", listener)]


def test_the_tools_say_at_once_that_an_advertised_address_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    # No process can listen on this port.
    with Broker(settings={"advertised.listeners": "PLAINTEXT://127.0.0.1:1"}) as broker:
        inside = ["--bootstrap", f"{broker.host}:{broker.port}"]
        with RawClient(broker.host, broker.port) as client:
            client.call(FindCoordinatorRequest(key="orders-1", key_type=1), 2)  # This creates __transaction_state.
        began = time.monotonic()
        assert main(["txn", "explain", "orders-1", *inside]) == 3
        said = capsys.readouterr().err
        assert main(["doctor", *inside]) == 3
        warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
        assert time.monotonic() - began < 7
    problem = "broker 1 cannot be reached at its advertised address: cannot connect to 127.0.0.1:1: Connection refused"
    assert said.startswith(f"error: {problem}\n\nhint: the cluster gave this address for broker 1: ")
    assert "does its advertised.listeners name an address" in said
    [warning] = warnings
    assert warning.startswith("warning: the offsets of __transaction_state-0 and 49 other partitions are unknown, ")
    assert f": {problem}; " in warning
    assert all("advertised.listeners" in line for line in warnings)


def test_doctor_says_what_it_does_not_know_and_warns_once_about_one_address() -> None:
    with Broker(settings={"advertised.listeners": "PLAINTEXT://127.0.0.1:1"}) as broker:
        done = run_fencepost("doctor", "--bootstrap", broker.bootstrap_servers)
    assert done.returncode == 3
    assert "no findings" not in done.stdout
    assert done.stdout.startswith("NOT KNOWN    broker 1 could not list its transactions")
    assert done.stderr.count("warning: ") == 1
