"""`fencepost verify` on clusters that want TLS and logins: every client logs in through the tap, among faults."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from fencepost.client.admin.topics import create_topic
from fencepost.client.client import KafkaClient
from fencepost.testing import Broker
from tests.certificates import Authority
from tests.command_line import run_fencepost
from tests.e2e.test_sasl import add_user
from tests.e2e.verify.runs import TIMEOUT_S, committed_by, options_of, verify_cluster
from tests.engines.apache_kafka import ApacheKafka
from tests.engines.oidc import AUDIENCE, ISSUER, OidcProvider, SigningKey
from tests.gallery.running import INPUT, OUTPUTS, PARTITIONS, program

pytestmark = pytest.mark.timeout(TIMEOUT_S)
KEY = SigningKey()
USER, PASSWORD = "alice", 'correct "horse"\\'
LOGINS = ("none", "PLAIN", "SCRAM-SHA-256", "OAUTHBEARER")
# A busy machine may need one of the longer runs until each client has committed.
SECONDS = (3, 12, 48)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    with OidcProvider(KEY) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(authority: Authority) -> Iterator[Broker]:
    """A broker that wants TLS, and a login by PLAIN, SCRAM or a token."""
    (authority.path.parent / "jwks.json").write_text(KEY.jwks)
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    written = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{plain} user_{USER}="{written}";',
        "sasl.oauthbearer.jwks.endpoint.url": (authority.path.parent / "jwks.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "ssl.keystore.location": authority.issue("broker", "CN=broker", ("127.0.0.1",)).path,
    }
    with Broker(settings=settings) as broker:
        add_user(broker, USER, PASSWORD)
        yield broker


def settings_of(broker: Broker, authority: Authority, provider: OidcProvider, login: str) -> dict[str, str]:
    listener = "SSL" if login == "none" else "SASL_SSL"
    found = {
        "bootstrap.servers": broker.listeners[listener],
        "security.protocol": listener,
        "ssl.ca.location": str(authority.path),
    }
    return found | login_settings(login, provider)


def login_settings(login: str, provider: OidcProvider, password: str = PASSWORD) -> dict[str, str]:
    if login == "none":
        return {}
    if login == "OAUTHBEARER":
        return provider.settings
    return {"sasl.mechanism": login, "sasl.username": USER, "sasl.password": password}


@pytest.mark.slow
@pytest.mark.parametrize(
    "login",
    ["OAUTHBEARER", *(pytest.param(each, marks=pytest.mark.engines) for each in ("none", "PLAIN", "SCRAM-SHA-256"))],
)
def test_all_clients_work_on_a_cluster_with_tls_and_logins(
    guarded: Broker, authority: Authority, provider: OidcProvider, login: str, tmp_path: Path
) -> None:
    assert_all_work(settings_of(guarded, authority, provider, login), tmp_path, "librdkafka", "fencepost-v2")


def assert_all_work(settings: Mapping[str, str], folder: Path, *kinds: str, options: Sequence[str] = ()) -> None:
    """A writer and a copier of each kind of client commit, and the cluster is not accused."""
    clients = ("--clients", ",".join(f"{kind}=1" for kind in kinds), *options, *options_of(settings))
    for seconds in SECONDS:
        history = folder / f"{seconds}.jsonl"
        given = ("--seconds", str(seconds), "--faults", "network", "--seed", "5", *clients)
        verdict = verify_cluster(settings["bootstrap.servers"], history, *given)
        assert (verdict.exit_code, verdict.kinds) == (0, set()), verdict.stderr
        committed = committed_by(history)
        if all(committed[f"{kind}-{role}"] for kind in kinds for role in ("writer", "copier")):
            return
    pytest.fail(f"in {SECONDS[-1]} s: {committed}")


def test_a_wrong_password_is_reported_and_not_shown(
    guarded: Broker, authority: Authority, provider: OidcProvider
) -> None:
    settings = settings_of(guarded, authority, provider, "PLAIN") | {"sasl.password": "battery staple"}
    done = run_fencepost(
        *("verify", "cluster", "--bootstrap", settings["bootstrap.servers"], *options_of(settings), "--seconds", "1")
    )
    assert done.returncode == 3, done.stderr
    assert "battery staple" not in done.stderr


@pytest.mark.parametrize(
    ("login", "is_tls"),
    [
        ("PLAIN", False),
        ("OAUTHBEARER", True),
        pytest.param("PLAIN", True, marks=pytest.mark.engines),
        pytest.param("OAUTHBEARER", False, marks=pytest.mark.engines),
    ],
)
@pytest.mark.slow
def test_a_program_works_behind_the_tap_of_a_cluster_with_tls_and_logins(
    guarded: Broker,
    authority: Authority,
    provider: OidcProvider,
    login: str,
    is_tls: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = settings_of(guarded, authority, provider, login)
    with KafkaClient(settings) as client:
        for topic in (INPUT, *OUTPUTS):
            if topic not in client.refresh([topic]):
                create_topic(client, topic, PARTITIONS, 1)
    protocol = {"security.protocol": "SASL_SSL" if is_tls else "SASL_PLAINTEXT"}
    trusted = {"ssl.ca.location": str(authority.path)} if is_tls else {}
    monkeypatch.setenv("GALLERY_SETTINGS", json.dumps({**protocol, **trusted, **login_settings(login, provider)}))
    store = authority.issue("tap", "CN=tap", ("127.0.0.1",))
    certificate = ("--certificate", str(store.certificate), "--key", str(store.key)) if is_tls else ()
    done = run_fencepost(
        *("verify", "pipeline", "--bootstrap", settings["bootstrap.servers"], *options_of(settings), *certificate),
        *("--input", INPUT, "--output", ",".join(OUTPUTS), "--group", "tills", "--seed", "7"),
        *("--seconds", "2", "--kill-every", "1s", "--faults", "kill,cut", "--", *program("right")),
    )
    assert done.returncode == 0, done.stderr
    assert "no anomaly" in done.stderr


@pytest.mark.engines
@pytest.mark.java
@pytest.mark.parametrize("login", LOGINS)
def test_all_clients_work_on_apache_kafka_with_tls_and_logins(
    apache: ApacheKafka, login: str, tmp_path: Path, java_clients: str
) -> None:
    """Tokens are renewed on open connections, since this broker ends a login after REAUTHENTICATED_MS."""
    assert apache.token_key is not None
    with OidcProvider(apache.token_key) as provider:
        mechanism = login if login not in ("none", "OAUTHBEARER") else None
        settings = apache.security("SSL" if login == "none" else "SASL_SSL", mechanism)
        settings |= provider.settings if login == "OAUTHBEARER" else {}
        options = ("--java-clients", java_clients)
        assert_all_work(settings, tmp_path, "librdkafka", "fencepost-v2", "java", options=options)
