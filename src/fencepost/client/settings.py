"""The settings of a client, with the names of librdkafka and the Java client.

An unknown name is an error with the most similar known name, because a misspelt security setting must not be ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.client.failures import BadClientSetting
from fencepost.client.oauthbearer import OAUTHBEARER_SETTINGS, OAuthLogin, parse_login
from fencepost.client.sasl import MECHANISMS, OAUTHBEARER
from fencepost.client.tls import TLS_SETTINGS, TlsSettings, parse_tls
from fencepost.counting import whole_number
from fencepost.spelling import did_you_mean

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
KNOWN = {
    "bootstrap.servers": "HOST:PORT[,HOST:PORT...]",
    "client.id": "a name for the brokers' logs",
    "security.protocol": " or ".join(PROTOCOLS),
    "sasl.mechanism": " or ".join(MECHANISMS),
    "sasl.mechanisms": "sasl.mechanism, as librdkafka writes it",
    "sasl.username": "of PLAIN and SCRAM",
    "sasl.password": "of PLAIN and SCRAM",
    "sasl.jaas.config": "username and password, or clientId and clientSecret, as the Java client writes them",
    "sasl.login.callback.handler.class": "the Java client's handler of OAUTHBEARER, whose work this client does itself",
    **OAUTHBEARER_SETTINGS,
    **TLS_SETTINGS,
    "request.timeout.ms": "how long one request may take",
    "socket.connection.setup.timeout.ms": "how long connecting may take",
}
# Settings of the Java clients that cannot be ignored, and their replacements.
_OUR_TOKENS = (
    "leave it out: OAUTHBEARER has client credentials (sasl.oauthbearer.token.endpoint.url, .client.id, "
    ".client.secret), and oauth_cb=MODULE:FUNCTION for every other way to make a token"
)
_OUR_SASL = f"leave it out: sasl.mechanism is {' or '.join(MECHANISMS)} here; oauth_cb makes tokens for OAUTHBEARER"
_OUR_TLS = "leave it out: versions and ciphers of TLS are those of the system's OpenSSL"
# Prefixes of names, and what to do instead.
INSTEAD_OF = {
    ("sasl.oauthbearer.",): _OUR_TOKENS,
    ("sasl.client.callback.", "sasl.kerberos.", "sasl.login."): _OUR_SASL,
    (
        *("security.providers", "ssl.cipher.suites", "ssl.enabled.protocols", "ssl.engine.", "ssl.keymanager."),
        *("ssl.protocol", "ssl.provider", "ssl.secure.random.", "ssl.trustmanager."),
    ): _OUR_TLS,
    ("config.providers",): "leave it out, and write the values themselves",
    ("bootstrap.controllers",): "bootstrap.servers=HOST:PORT of any broker",
}
# Of the Java client: this client has both in one.
_KNOWN_HANDLERS = ("OAuthBearerLoginCallbackHandler",)
MAX_PORT = 65_535
MOST_MS = 2**31 - 1  # As in Kafka, and as much as a socket can wait.
_JAAS = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "fencepost"
    protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    oauth: OAuthLogin | None = None
    tls: TlsSettings = field(default_factory=TlsSettings)
    request_timeout_s: float = 30.0
    connect_timeout_s: float = 10.0

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")


def parse_address(text: str) -> tuple[str, int]:
    host, colon, port = text.strip().rpartition(":")
    number = whole_number(port, MAX_PORT) if colon and host else None
    if not number:
        raise BadClientSetting(
            f"bootstrap.servers has {text.strip()!r}, expected HOST:PORT\n\nhint: for example localhost:9092"
        )
    return host.strip("[]"), number


def parse_settings(pairs: Mapping[str, object]) -> ClientSettings:
    """Raises BadClientSetting, whose message has the value and what is allowed."""
    values = {name: str(value) for name, value in pairs.items() if value is not None}
    for name in values:
        if name not in KNOWN:
            raise BadClientSetting(describe_unknown(name))
    if not values.get("bootstrap.servers"):
        raise BadClientSetting("bootstrap.servers is missing\n\nhint: set it to HOST:PORT of any broker")
    protocol = values.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise BadClientSetting(f"security.protocol={protocol} is none of {', '.join(PROTOCOLS)}")
    credentials = _credentials(values, protocol, pairs.get("oauth_cb"))
    bootstrap = tuple(parse_address(a) for a in values["bootstrap.servers"].split(",") if a.strip())
    if not bootstrap:
        raise BadClientSetting(
            f"bootstrap.servers={values['bootstrap.servers']} names no broker\n\n"
            "hint: set it to HOST:PORT of any broker, or several with commas"
        )
    return ClientSettings(
        bootstrap=bootstrap,
        client_id=values.get("client.id", "fencepost"),
        protocol=protocol,
        sasl_mechanism=credentials.mechanism,
        username=credentials.username,
        password=credentials.password,
        oauth=credentials.oauth,
        tls=parse_tls(values),
        request_timeout_s=_seconds(values, "request.timeout.ms", 30_000),
        connect_timeout_s=_seconds(values, "socket.connection.setup.timeout.ms", 10_000),
    )


def describe_unknown(name: str, known: Iterable[str] = KNOWN) -> str:
    """The message about a setting that is none of `known`."""
    instead = next((instead for prefixes, instead in INSTEAD_OF.items() if name.startswith(prefixes)), None)
    if instead is not None:
        return f"{name} is a setting of Java clients, which this client cannot use\n\nhint: {instead}"
    hint = did_you_mean(name, known)
    return f"unknown setting {name}" + (f"\n\nhint: {hint}" if hint else "")


class _Credentials(NamedTuple):
    mechanism: str | None = None
    username: str = ""
    password: str = ""
    oauth: OAuthLogin | None = None


def _credentials(values: Mapping[str, str], protocol: str, function: object) -> _Credentials:
    """function: oauth_cb as it was given."""
    if not protocol.startswith("SASL"):
        return _Credentials()
    mechanism = (values.get("sasl.mechanism") or values.get("sasl.mechanisms") or "").upper()
    if mechanism == "AWS_MSK_IAM":
        raise BadClientSetting(
            "sasl.mechanism=AWS_MSK_IAM is a mechanism of Java clients only\n\nhint: MSK takes OAUTHBEARER too: set "
            "sasl.mechanism=OAUTHBEARER, and oauth_cb to a function that calls aws-msk-iam-sasl-signer-python"
        )
    if mechanism not in MECHANISMS:
        raise BadClientSetting(f"sasl.mechanism={mechanism or '(none)'} is none of {', '.join(MECHANISMS)}")
    jaas = dict(_JAAS.findall(values.get("sasl.jaas.config", "")))
    if mechanism == OAUTHBEARER:
        handler = values.get("sasl.login.callback.handler.class", _KNOWN_HANDLERS[0])
        if not handler.endswith(_KNOWN_HANDLERS):
            raise BadClientSetting(
                f"sasl.login.callback.handler.class={handler} is Java, which this client cannot call\n\n"
                "hint: oauth_cb=MODULE:FUNCTION names a function in Python that makes the same token"
            )
        return _Credentials(mechanism, oauth=parse_login(values, jaas, function))
    username = values.get("sasl.username", jaas.get("username", ""))
    password = values.get("sasl.password", jaas.get("password", ""))
    if not username:
        raise BadClientSetting(f"security.protocol={protocol} needs sasl.username and sasl.password")
    return _Credentials(mechanism, username, password)


def _seconds(values: Mapping[str, str], name: str, default_ms: int) -> float:
    text = values.get(name, str(default_ms))
    ms = whole_number(text, MOST_MS)
    if not ms:
        raise BadClientSetting(f"{name}={text} is not a number of milliseconds from 1 to {MOST_MS}")
    return ms / 1000
