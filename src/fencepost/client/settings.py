"""The settings of a client, with the names of librdkafka and the Java client.

An unknown name is an error with the most similar known name, because a misspelt security setting must not be ignored.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fencepost.client.failures import BadClientSetting
from fencepost.client.numbers import whole_number

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
KNOWN = {
    "bootstrap.servers": "HOST:PORT[,HOST:PORT...]",
    "client.id": "a name for the brokers' logs",
    "security.protocol": " or ".join(PROTOCOLS),
    "sasl.mechanism": " or ".join(MECHANISMS),
    "sasl.mechanisms": "the same, as librdkafka writes it",
    "sasl.username": "",
    "sasl.password": "",
    "sasl.jaas.config": "username and password, as the Java client writes them",
    "ssl.ca.location": "a PEM file or folder; the system's certificates if absent",
    "ssl.certificate.location": "a PEM file with the client's certificate",
    "ssl.key.location": "a PEM file with the client's key",
    "ssl.key.password": "",
    "ssl.endpoint.identification.algorithm": "https, or none to accept any host name",
    "request.timeout.ms": "how long one request may take",
    "socket.connection.setup.timeout.ms": "how long connecting may take",
}
# Settings of the Java clients that cannot be ignored, for example stores of certificates, and their replacements.
_PEM_AUTHORITY = "ssl.ca.location=FILE, with the authority's certificate as PEM (`keytool -exportcert -rfc` writes one)"
_PEM_CLIENT = (
    "ssl.certificate.location=FILE and ssl.key.location=FILE, with certificate and key as PEM "
    "(`keytool -importkeystore -deststoretype PKCS12`, then `openssl pkcs12`, write them)"
)
_OUR_SASL = f"leave it out: sasl.mechanism is {' or '.join(MECHANISMS)} here, with sasl.username and sasl.password"
_OUR_TLS = "leave it out: versions and ciphers of TLS are those of the system's OpenSSL"
# Prefixes of names, and what to do instead.
INSTEAD_OF = {
    ("ssl.truststore.",): _PEM_AUTHORITY,
    ("ssl.keystore.",): _PEM_CLIENT,
    ("sasl.client.callback.", "sasl.kerberos.", "sasl.login.", "sasl.oauthbearer."): _OUR_SASL,
    (
        *("security.providers", "ssl.cipher.suites", "ssl.enabled.protocols", "ssl.engine.", "ssl.keymanager."),
        *("ssl.protocol", "ssl.provider", "ssl.secure.random.", "ssl.trustmanager."),
    ): _OUR_TLS,
    ("config.providers",): "leave it out, and write the values themselves",
    ("bootstrap.controllers",): "bootstrap.servers=HOST:PORT of any broker",
}
MAX_PORT = 65_535
MOST_MS = 2**31 - 1  # As in Kafka, and as much as a socket can wait.
_JAAS = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "fencepost"
    protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    ca_location: str | None = None
    certificate_location: str | None = None
    key_location: str | None = None
    key_password: str | None = field(default=None, repr=False)
    checks_host_name: bool = True
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
            raise BadClientSetting(_unknown(name))
    if not values.get("bootstrap.servers"):
        raise BadClientSetting("bootstrap.servers is missing\n\nhint: set it to HOST:PORT of any broker")
    protocol = values.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise BadClientSetting(f"security.protocol={protocol} is none of {', '.join(PROTOCOLS)}")
    mechanism, username, password = _credentials(values, protocol)
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
        sasl_mechanism=mechanism,
        username=username,
        password=password,
        ca_location=values.get("ssl.ca.location"),
        certificate_location=values.get("ssl.certificate.location"),
        key_location=values.get("ssl.key.location"),
        key_password=values.get("ssl.key.password"),
        checks_host_name=values.get("ssl.endpoint.identification.algorithm", "https").lower() not in ("", "none"),
        request_timeout_s=_seconds(values, "request.timeout.ms", 30_000),
        connect_timeout_s=_seconds(values, "socket.connection.setup.timeout.ms", 10_000),
    )


def _unknown(name: str) -> str:
    instead = next((instead for prefixes, instead in INSTEAD_OF.items() if name.startswith(prefixes)), None)
    if instead is not None:
        return f"{name} is a setting of Java clients, which this client cannot use\n\nhint: {instead}"
    near = difflib.get_close_matches(name, KNOWN, n=1)
    return f"unknown setting {name}" + (f"\n\nhint: did you mean {near[0]}?" if near else "")


def _credentials(values: Mapping[str, str], protocol: str) -> tuple[str | None, str, str]:
    if not protocol.startswith("SASL"):
        return None, "", ""
    mechanism = (values.get("sasl.mechanism") or values.get("sasl.mechanisms") or "").upper()
    if mechanism not in MECHANISMS:
        raise BadClientSetting(f"sasl.mechanism={mechanism or '(none)'} is none of {', '.join(MECHANISMS)}")
    jaas = dict(_JAAS.findall(values.get("sasl.jaas.config", "")))
    username = values.get("sasl.username", jaas.get("username", ""))
    password = values.get("sasl.password", jaas.get("password", ""))
    if not username:
        raise BadClientSetting(f"security.protocol={protocol} needs sasl.username and sasl.password")
    return mechanism, username, password


def _seconds(values: Mapping[str, str], name: str, default_ms: int) -> float:
    text = values.get(name, str(default_ms))
    ms = whole_number(text, MOST_MS)
    if not ms:
        raise BadClientSetting(f"{name}={text} is not a number of milliseconds from 1 to {MOST_MS}")
    return ms / 1000
