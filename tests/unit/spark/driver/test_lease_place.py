"""Where the lease service listens by default: not on all addresses of the driver. And whether it encrypts."""

from __future__ import annotations

import pytest

from fencepost.spark.driver.lease_place import decide_tls, lease_place, start_lease_server
from fencepost.spark.lease.client import LeaseClient
from fencepost.spark.lease.messages import TaskAttempt
from fencepost.spark.lease.rules import LeaseTable
from fencepost.spark.settings import parse_sink_settings


@pytest.mark.parametrize(
    ("given", "spark_host", "spark_bind", "expected"),
    [
        ({}, "10.0.0.7", None, ("10.0.0.7", "10.0.0.7")),
        ({}, "driver-svc.ns.svc", "10.1.2.3", ("driver-svc.ns.svc", "10.1.2.3")),
        ({}, "[fd00::7]", None, ("fd00::7", "fd00::7")),
        ({"host": "gateway"}, "10.0.0.7", None, ("gateway", "10.0.0.7")),
        ({"host": "gateway"}, "10.0.0.7", "0.0.0.0", ("gateway", "0.0.0.0")),
        ({"bind": "0.0.0.0"}, "10.0.0.7", "10.0.0.8", ("10.0.0.7", "0.0.0.0")),
        ({"bind": "[::]"}, "10.0.0.7", None, ("10.0.0.7", "::")),
        ({}, None, None, ("127.0.0.1", "127.0.0.1")),
    ],
)
def test_it_listens_where_sparks_driver_does_unless_the_user_says_otherwise(
    given: dict[str, str], spark_host: str | None, spark_bind: str | None, expected: tuple[str, str]
) -> None:
    own = {f"fencepost.lease.{name}": value for name, value in given.items()}
    settings = parse_sink_settings({"bootstrap.servers": "kafka:9092", "transactional.id": "x-1", **own})
    assert lease_place(settings, spark_host, spark_bind) == expected


SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "u", "sasl.password": "p"}
OAUTH = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "hush",
}
KEY = {"security.protocol": "SSL", "ssl.keystore.location": "/k.p12", "ssl.keystore.password": "p"}
CLUSTER = {"spark.master": "spark://master:7077"}


def decided(
    client: dict[str, str], conf: dict[str, str], tls: str | None = None, host: str = "10.0.0.7"
) -> tuple[bool, str | None]:
    given = {"bootstrap.servers": "kafka:9092", "transactional.id": "x-1", "fencepost.lease.tls": tls, **client}
    return decide_tls(parse_sink_settings(given), host, conf.get)


@pytest.mark.parametrize(
    ("client", "conf", "is_on"),
    [
        ({}, {}, False),
        ({}, {"spark.network.crypto.enabled": "true"}, True),
        ({}, {"spark.ssl.rpc.enabled": "TRUE "}, True),
        ({}, {"spark.authenticate.enableSaslEncryption": "true"}, True),
        ({}, {"spark.network.crypto.enabled": "false", "spark.ssl.rpc.enabled": ""}, False),
        ({}, {"spark.authenticate": "true", "spark.io.encryption.enabled": "true", "spark.ssl.enabled": "true"}, False),
        ({"security.protocol": "SSL"}, {}, True),
        (KEY, {}, True),
        (SASL, {}, True),
        (OAUTH, {}, True),
        ({**SASL, "security.protocol": "SASL_PLAINTEXT"}, {}, True),
    ],
)
def test_by_itself_the_lease_port_is_encrypted_where_sparks_or_kafkas_traffic_is_or_kafka_wants_a_login(
    client: dict[str, str], conf: dict[str, str], is_on: bool
) -> None:
    assert decided(client, {**CLUSTER, **conf}) == (is_on, None)
    assert decided(client, {**CLUSTER, **conf}, "auto") == (is_on, None)


@pytest.mark.parametrize("master", ["local", "local[4]", "local[*]", "local[*, 3]"])
def test_one_process_has_no_tls_by_itself(master: str) -> None:
    conf = {"spark.master": master, "spark.network.crypto.enabled": "true"}
    assert decided(SASL, conf) == (False, None)
    assert decided(SASL, conf, "false") == (False, None), "the password stays on the machine"
    assert decided(SASL, conf, "true") == (True, None)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.1.1", "::1", "localhost", "Localhost"])
def test_a_driver_that_is_found_on_loopback_only_has_no_tls_by_itself(host: str) -> None:
    assert decided(SASL, CLUSTER, host=host) == (False, None)


@pytest.mark.parametrize("master", [None, "local-cluster[2,1,1024]", "yarn", "k8s://https://localhost:6443"])
def test_a_master_that_is_another_or_unknown_is_a_cluster(master: str | None) -> None:
    """A server of Spark Connect need not show its configuration."""
    assert decided(SASL, {} if master is None else {"spark.master": master}) == (True, None)


@pytest.mark.parametrize(
    ("client", "said"),
    [(SASL, "sends tasks a password"), (OAUTH, "sends tasks a token"), (KEY, "sends tasks a key or its password")],
)
def test_who_switches_tls_off_is_warned_of_what_crosses_the_network_in_clear(client: dict[str, str], said: str) -> None:
    is_on, warning = decided(client, CLUSTER, "False")
    assert not is_on
    assert warning is not None
    assert said in warning
    assert "at 10.0.0.7 without encryption, because of fencepost.lease.tls=false" in warning
    assert decided(client, CLUSTER, "true") == (True, None)


@pytest.mark.parametrize("client", [{}, {"security.protocol": "SSL"}])
def test_who_switches_tls_off_where_no_secret_crosses_is_not_warned(client: dict[str, str]) -> None:
    assert decided(client, CLUSTER, "false") == (False, None)


class Session:
    """What `start_lease_server` uses of Spark's session."""

    def __init__(self, **conf: str) -> None:
        self.conf = self
        self._conf = {name.replace("_", "."): value for name, value in conf.items()}

    def get(self, name: str, default: str | None) -> str | None:
        return self._conf.get(name, default)


def test_the_lease_port_opens_as_decided_and_the_warning_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    session = Session(spark_master="yarn", spark_driver_host="driver.example", spark_driver_bindAddress="127.0.0.1")
    given = {"bootstrap.servers": "kafka:9092", "transactional.id": "x-1", **SASL}
    is_encrypted = {}
    for tls in ("auto", "false"):
        server = start_lease_server(parse_sink_settings({**given, "fencepost.lease.tls": tls}), session)
        try:
            address = server.open(LeaseTable(lease_timeout_ms=60_000), lambda partitions: None)
            with LeaseClient(address._replace(host="127.0.0.1"), TaskAttempt(1, 0, 1)) as task:
                task.done({})
        finally:
            server.stop()
        is_encrypted[tls] = bool(address.fingerprint)
    assert is_encrypted == {"auto": True, "false": False}
    [warning] = caplog.messages
    assert warning.startswith("the driver sends tasks a password for Kafka over the lease port at driver.example")
