"""The settings of a sink: which are accepted, and how others are refused."""

from __future__ import annotations

import pytest

from fencepost.client.failures import BadClientSetting
from fencepost.spark.settings import SinkSettings, parse_sink_settings

NEEDED = {"bootstrap.servers": "localhost:9092", "transactional.id": "refunds"}


def parsed(**more: object) -> SinkSettings:
    return parse_sink_settings(NEEDED | {name.replace("_", "."): value for name, value in more.items()})


def test_two_settings_are_enough() -> None:
    settings = parse_sink_settings(NEEDED)
    assert settings.client == {"bootstrap.servers": "localhost:9092"}
    assert (settings.transactional_id, settings.timeout_ms, settings.compression) == ("refunds", 300_000, "none")
    absent = (settings.group_id, settings.topic, settings.source_client, settings.metrics_port)
    assert set(absent) == {None}


@pytest.mark.parametrize(
    ("timeout_ms", "delivery_ms", "lease_ms"),
    [(300_000, None, 120_000), (60_000, None, 48_000), (900_000, 30_000, 30_000), (60_000, 90_000, 48_000)],
)
def test_a_write_is_given_up_in_time_for_the_transaction_to_be_aborted(
    timeout_ms: int, delivery_ms: int | None, lease_ms: int
) -> None:
    assert parsed(transaction_timeout_ms=timeout_ms, delivery_timeout_ms=delivery_ms).lease_timeout_ms == lease_ms


def test_the_cluster_of_the_sources_takes_any_client_setting_behind_its_prefix() -> None:
    settings = parsed(
        fencepost_source_bootstrap_servers="elsewhere:9092",
        fencepost_source_security_protocol="SASL_PLAINTEXT",
        fencepost_source_sasl_mechanism="PLAIN",
        fencepost_source_sasl_username="me",
        fencepost_source_sasl_password="secret",
    )
    assert settings.source_client is not None
    assert settings.source_client["bootstrap.servers"] == "elsewhere:9092"
    assert settings.client == {"bootstrap.servers": "localhost:9092"}
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("transactional.id", "", r"transactional\.id is missing"),
        ("transactional.di", "x", r"unknown setting transactional\.di\n\nhint: did you mean transactional\.id\?"),
        ("fencepost.lease.prot", "x", r"did you mean fencepost\.lease\.port\?"),
        (
            "sasl.kerberos.service.name",
            "kafka",
            "a setting of Java clients, which this client cannot use\n\nhint: leave",
        ),
        ("topic", "", "topic is empty\n\nhint: name the output topic"),
        ("fencepost.lease.tls", "yes", "fencepost.lease.tls=yes is none of auto, true, false"),
        ("compression.type", "rar", "compression.type=rar is none of none, gzip"),
        ("transaction.timeout.ms", "soon", r"transaction\.timeout\.ms=soon is not a whole number above 0"),
        ("delivery.timeout.ms", "0", r"delivery\.timeout\.ms=0 is not"),
        ("fencepost.transaction.partition.verification.enable", "yes", "=yes is neither true nor false"),
        ("fencepost.offsets.retention.minutes", "0", r"fencepost\.offsets\.retention\.minutes=0 is not"),
        ("fencepost.lease.port", "9-1", "the lower one first"),
        ("fencepost.metrics.port", "70000", r"fencepost\.metrics\.port=70000 is not a port"),
        ("fencepost.source.security.protocol", "SSL", r"fencepost\.source\.\*: bootstrap\.servers is missing"),
        ("fencepost.source.topic", "x", r"fencepost\.source\.\*: unknown setting topic"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_would_do(name: str, value: str, message: str) -> None:
    with pytest.raises(BadClientSetting, match=message):
        parse_sink_settings(NEEDED | {name: value})


def test_a_transactional_id_that_the_next_start_will_not_have_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "etl-6d4cf56db6-x7k2p.cluster.local")
    assert parsed(transactional_id="refunds-etl-6d4cf56db6-x7k2p-1").looks_random
    monkeypatch.setattr("socket.gethostname", lambda: "etl")
    assert parsed(transactional_id="etl-9f1c3b52-7d2e-4d6a-9a3e-0b1c2d3e4f50").looks_random
    assert not parsed(transactional_id="etl-2024").looks_random
