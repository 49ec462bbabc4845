"""The settings of each kind of client. It connects to a tap, which speaks TLS with the cluster; logins pass through.

They travel to the process of the client as JSON. Tokens are made there; `oauth_cb` is the name of a function.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.client.oauthbearer import TokenSource, token_source
from fencepost.client.sasl import OAUTHBEARER
from fencepost.client.settings import ClientSettings, parse_settings
from fencepost.verify.history import CLIENT_PATIENCE_MS
from fencepost.verify.workload.plan import JAVA, LIBRDKAFKA

# Of a client that is not our own: the settings that its tokens are made with.
TOKENS = "fencepost.tokens"
_MODULES = "org.apache.kafka.common.security"


def client_settings(kind: str, given: Mapping[str, str], address: str, name: str) -> dict[str, Any]:
    """`given`: the settings of the cluster. `address`: that of the tap."""
    parsed = parse_settings(given)
    reached = {"bootstrap.servers": address, "client.id": name, "security.protocol": _without_tls(parsed.protocol)}
    kept = {key: value for key, value in given.items() if not key.startswith("ssl.")} | reached
    if kind not in (LIBRDKAFKA, JAVA):
        return kept | {"request.timeout.ms": str(CLIENT_PATIENCE_MS)}
    if parsed.sasl_mechanism is None:
        return dict(reached)
    login = {"sasl.mechanism": parsed.sasl_mechanism}
    if parsed.sasl_mechanism == OAUTHBEARER:
        return reached | login | {TOKENS: kept}
    if kind == LIBRDKAFKA:
        return reached | login | {"sasl.username": parsed.username, "sasl.password": parsed.password}
    return reached | login | {"sasl.jaas.config": _jaas(parsed)}


def take_tokens(settings: Mapping[str, Any]) -> tuple[dict[str, Any], TokenSource | None]:
    """The settings for the client library, and the source of the tokens that its login needs."""
    found = dict(settings)
    login = parse_settings(found.pop(TOKENS)).oauth if TOKENS in found else None
    return found, token_source(login) if login is not None else None


def _jaas(parsed: ClientSettings) -> str:
    module = "plain.PlainLoginModule" if parsed.sasl_mechanism == "PLAIN" else "scram.ScramLoginModule"
    return f"{_MODULES}.{module} required username={_quoted(parsed.username)} password={_quoted(parsed.password)};"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _without_tls(protocol: str) -> str:
    return "SASL_PLAINTEXT" if protocol.startswith("SASL") else "PLAINTEXT"
