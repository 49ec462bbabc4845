"""The settings of a client: Kafka's names, as librdkafka and the Java client write them.

Unknown names are refused with the nearest known one: a misspelt security setting must not be ignored.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fencepost.client.failures import BadClientSetting

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
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise BadClientSetting(f"bootstrap.servers has {text.strip()!r}, expected HOST:PORT")
    return host.strip("[]"), int(port)


def parse_settings(pairs: Mapping[str, object]) -> ClientSettings:
    """Raises BadClientSetting: what was given, and what would do."""
    values = {name: str(value) for name, value in pairs.items() if value is not None}
    for name in values:
        if name not in KNOWN:
            near = difflib.get_close_matches(name, KNOWN, n=1)
            raise BadClientSetting(f"unknown setting {name}" + (f"\n\nhint: did you mean {near[0]}?" if near else ""))
    if not values.get("bootstrap.servers"):
        raise BadClientSetting("bootstrap.servers is missing\n\nhint: set it to HOST:PORT of any broker")
    protocol = values.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise BadClientSetting(f"security.protocol={protocol} is none of {', '.join(PROTOCOLS)}")
    mechanism, username, password = _credentials(values, protocol)
    return ClientSettings(
        bootstrap=tuple(parse_address(a) for a in values["bootstrap.servers"].split(",") if a.strip()),
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
    if not text.isdigit() or int(text) == 0:
        raise BadClientSetting(f"{name}={text} is not a number of milliseconds above 0")
    return int(text) / 1000
