"""Our own client on Apache Kafka with tokens, and with certificates in every form that it reads."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.client.client import KafkaClient
from fencepost.client.failures import AuthenticationFailed, BadClientSetting
from fencepost.client.oauthbearer import Token, TokenSource
from tests.command_line import run_fencepost
from tests.engines.apache_kafka import PASSWORD, REAUTHENTICATED_MS, ApacheKafka
from tests.engines.java import skip_without_java
from tests.engines.oidc import OidcProvider

pytestmark = [pytest.mark.java]


@pytest.fixture
def provider(apache: ApacheKafka) -> Iterator[OidcProvider]:
    assert apache.token_key is not None
    with OidcProvider(apache.token_key) as running:
        yield running


def count_of_brokers(settings: dict[str, Any]) -> int:
    with KafkaClient(settings, first_patience_s=0.1) as client:
        return len(client.brokers())


# --- tokens -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_token_of_an_oidc_endpoint_is_a_login(apache: ApacheKafka, provider: OidcProvider, protocol: str) -> None:
    settings = {**apache.security(protocol), **provider.settings}
    with KafkaClient(settings) as client:
        assert len(client.brokers()) == 1
        node = next(iter(client.brokers()))
        client.broker(node)
    assert len(provider.tokens) == 1, "two connections log in with one token"


def test_the_tools_log_in_with_a_token(apache: ApacheKafka, provider: OidcProvider) -> None:
    settings = {**apache.security("SASL_SSL"), **provider.settings}
    bootstrap = settings.pop("bootstrap.servers")
    options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    listed = run_fencepost("topic", "list", "--bootstrap", bootstrap, *options)
    assert (listed.returncode, provider.tokens != []) == (0, True), listed.stderr

    wrong = [word.replace("client.secret=", "client.secret=not ") for word in options]
    refused = run_fencepost("topic", "list", "--bootstrap", bootstrap, *wrong)
    assert refused.returncode == 3
    assert "with 401: invalid_client" in refused.stderr
    assert "hint: check sasl.oauthbearer.client.id, .client.secret and .scope" in refused.stderr
    assert "the secret of a test" not in refused.stderr


def test_a_connection_logs_in_again_with_a_new_token_when_the_brokers_time_is_up(apache: ApacheKafka) -> None:
    key = apache.token_key
    assert key is not None
    fetched: list[str] = []

    def fetch() -> Token:
        fetched.append(key.token())
        return Token(fetched[-1], time.time() + REAUTHENTICATED_MS / 1000)

    login = {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: None}
    with KafkaClient({**apache.security("SASL_PLAINTEXT"), **login}) as client:
        client.tokens = TokenSource(fetch)
        connection = client.any_broker()
        for _ in range(2):
            time.sleep(REAUTHENTICATED_MS / 1000 * 1.2)
            client.refresh()
        assert client.any_broker() is connection, "the broker has not closed it"
    assert len(fetched) == 3


@pytest.mark.parametrize(
    "claims",
    [{"aud": "another-cluster"}, {"iss": "https://other.example"}, {"exp": 1_000_000_000, "iat": 900_000_000}],
    ids=["audience", "issuer", "expired"],
)
def test_a_token_that_the_broker_refuses_is_reported_and_not_shown(apache: ApacheKafka, claims: dict[str, Any]) -> None:
    assert apache.token_key is not None
    token = apache.token_key.token(**claims)
    login = {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: (token, time.time() + 60)}
    with pytest.raises(AuthenticationFailed, match=r"refused the token: (?s:.*)hint: is the token for this") as failed:
        count_of_brokers({**apache.security("SASL_PLAINTEXT"), **login})
    assert token not in str(failed.value)


# --- certificates -------------------------------------------------------------------------------------------


def keytool(*arguments: str | Path) -> None:
    home = skip_without_java()
    quick = ["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC"]
    subprocess.run([home / "bin" / "keytool", *arguments, *quick], check=True, capture_output=True)


class Files:
    """A client's certificate and the authority's, in every form."""

    def __init__(self, apache: ApacheKafka, folder: Path) -> None:
        assert apache.authority is not None
        self.client = apache.authority.certify("CN=client of a test")
        self.authority_pem = apache.authority.pem
        self.ca, self.certificate, self.key = (folder / f"{name}.pem" for name in ("ca", "certificate", "key"))
        self.both = folder / "both.pem"
        self.ca.write_text(self.authority_pem)
        self.certificate.write_text(self.client.certificate_pem())
        self.key.write_text(self.client.key_pem(PASSWORD))
        self.both.write_text(self.client.certificate_pem() + self.client.key_pem())
        self.keystore, self.truststore, self.jks = (folder / name for name in ("key.p12", "trust.p12", "key.jks"))
        ours = folder / "ours.p12"
        self.client.write_pkcs12(ours, PASSWORD)
        source: list[str | Path] = ["-importkeystore", "-srckeystore", ours, "-srcstorepass", PASSWORD]
        for store, kind in ((self.keystore, "PKCS12"), (self.jks, "JKS")):
            keytool(*source, "-destkeystore", store, "-deststoretype", kind, "-deststorepass", PASSWORD)
        trust: list[str | Path] = ["-importcert", "-noprompt", "-alias", "ca", "-file", self.ca]
        keytool(*trust, "-keystore", self.truststore, "-storetype", "PKCS12", "-storepass", PASSWORD)

    def forms(self) -> dict[str, dict[str, str]]:
        key_pem = self.client.key_pem(PASSWORD)
        return {
            "PEM files": {
                "ssl.ca.location": str(self.ca),
                "ssl.certificate.location": str(self.certificate),
                "ssl.key.location": str(self.key),
                "ssl.key.password": PASSWORD,
            },
            "PEM texts": {
                "ssl.ca.pem": self.authority_pem,
                "ssl.certificate.pem": self.client.certificate_pem(),
                "ssl.key.pem": key_pem,
                "ssl.key.password": PASSWORD,
            },
            "PEM texts in one line": {
                "ssl.ca.pem": self.authority_pem.replace("\n", "\\n"),
                "ssl.certificate.pem": self.client.certificate_pem().replace("\n", "\\n"),
                "ssl.key.pem": self.client.key_pem().replace("\n", "\\n"),
            },
            "PKCS12": {
                "ssl.truststore.location": str(self.truststore),
                "ssl.truststore.password": PASSWORD,
                "ssl.keystore.location": str(self.keystore),
                "ssl.keystore.password": PASSWORD,
                "ssl.keystore.type": "PKCS12",
            },
            "Java's PEM stores": {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.ca),
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.both),
            },
            "Java's PEM texts": {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": self.authority_pem,
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": self.client.certificate_pem(),
                "ssl.keystore.key": key_pem,
                "ssl.key.password": PASSWORD,
            },
        }


@pytest.fixture(scope="module")
def files(apache: ApacheKafka, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(apache, tmp_path_factory.mktemp("certificates"))


def mtls(apache: ApacheKafka, form: dict[str, str]) -> dict[str, str]:
    """The settings of the listener that wants a certificate, with certificates in this form."""
    wanted = apache.security("MTLS")
    return {"bootstrap.servers": wanted["bootstrap.servers"], "security.protocol": "SSL", **form}


@pytest.mark.parametrize(
    "form", ["PEM files", "PEM texts", "PEM texts in one line", "PKCS12", "Java's PEM stores", "Java's PEM texts"]
)
def test_the_clients_certificate_is_read_from(apache: ApacheKafka, files: Files, form: str) -> None:
    assert count_of_brokers(mtls(apache, files.forms()[form])) == 1


def test_a_client_without_a_certificate_does_not_get_in_where_one_is_wanted(apache: ApacheKafka, files: Files) -> None:
    with (
        KafkaClient(mtls(apache, {"ssl.ca.pem": files.authority_pem}), first_patience_s=0.1) as client,
        pytest.raises(Exception, match=r"certificate required|ended during ApiVersions|TLS with"),
    ):
        client.refresh()


def test_a_named_authority_is_the_only_one_that_is_trusted(apache: ApacheKafka, files: Files) -> None:
    from fencepost.client.settings import parse_settings
    from fencepost.client.tls import tls_context

    for form in ("PEM files", "PEM texts", "PKCS12"):
        context = tls_context(parse_settings(mtls(apache, files.forms()[form])).tls)
        assert [one["subject"] for one in context.get_ca_certs()] == [((("commonName", "Authority"),),)]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (
            {"ssl.keystore.password": "a guess"},
            r"ssl\.keystore\.location=.* cannot be read(?s:.*)ssl\.keystore\.password",
        ),
        ({"ssl.truststore.password": "a guess"}, r"ssl\.truststore\.location=.* cannot be read"),
        ({"ssl.keystore.location": "/no/such/file"}, "No such file or directory"),
        ({"ssl.keystore.location": "{jks}"}, r"is a JKS keystore, expected PKCS12\n\nhint: `keytool -importkeystore"),
        ({"ssl.keystore.location": "{truststore}"}, "has no private key"),
        ({"ssl.keystore.location": "{ca}"}, "cannot be read"),
        ({"ssl.keystore.type": "DKS"}, "ssl.keystore.type=DKS is none of PKCS12, PEM"),
        ({"ssl.ca.location": "{ca}"}, "ssl.ca.location and ssl.truststore.location are both set"),
    ],
)
def test_a_store_that_cannot_be_read_is_named(
    apache: ApacheKafka, files: Files, changed: dict[str, str], problem: str
) -> None:
    given = {name: value.format(**vars(files)) for name, value in changed.items()}
    with pytest.raises(BadClientSetting, match=problem) as refused:
        count_of_brokers(mtls(apache, files.forms()["PKCS12"] | given))
    assert "a guess" not in str(refused.value)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"ssl.key.password": "a guess"}, "the client's certificate or key cannot be read"),
        ({"ssl.key.password": ""}, "the client's certificate or key cannot be read"),
        ({"ssl.key.pem": "a guess"}, "ssl.key.pem is no PEM text"),
        ({"ssl.certificate.pem": ""}, "ssl.key.pem is set, but not ssl.certificate.pem"),
        ({"ssl.ca.pem": "-----BEGIN CERTIFICATE-----\na guess"}, "ssl.ca.pem: the certificates cannot be read"),
    ],
)
def test_a_pem_text_that_cannot_be_read_is_named_and_not_shown(
    apache: ApacheKafka, files: Files, changed: dict[str, str], problem: str
) -> None:
    with pytest.raises(BadClientSetting, match=problem) as refused:
        count_of_brokers(mtls(apache, files.forms()["PEM texts"] | changed))
    assert "a guess" not in str(refused.value)
