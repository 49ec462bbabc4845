"""The settings of each kind of client for a cluster with TLS and a login, and where Java is looked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fencepost.verify.workload.java.finding import NoJava, find_java, find_library
from fencepost.verify.workload.logins import TOKENS, client_settings, take_tokens
from fencepost.verify.workload.plan import JAVA, KINDS, LIBRDKAFKA, OWN_V2

TAP = "127.0.0.1:7000"
CLUSTER = {"bootstrap.servers": "kafka:9093", "ssl.ca.location": "authority.pem"}
WITH_PASSWORD = CLUSTER | {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "alice",
    "sasl.password": 'a "b" \\c',
}
WITH_TOKENS = CLUSTER | {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
    "sasl.oauthbearer.client.id": "refunds",
    "sasl.oauthbearer.client.secret": "hush",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [CLUSTER | {"security.protocol": "SSL"}, WITH_PASSWORD, WITH_TOKENS])
def test_clients_speak_with_the_tap_and_without_tls(kind: str, given: dict[str, str]) -> None:
    found = client_settings(kind, given, TAP, "w-0")
    assert found["bootstrap.servers"] == TAP
    assert found["client.id"] == "w-0"
    assert found["security.protocol"] == ("SASL_PLAINTEXT" if "sasl.mechanism" in given else "PLAINTEXT")
    assert not any(name.startswith("ssl.") for name in found)
    assert json.loads(json.dumps(found)) == found, "it travels to the client's process"


def test_a_password_reaches_each_client_in_its_own_form() -> None:
    assert client_settings(OWN_V2, WITH_PASSWORD, TAP, "w")["sasl.password"] == 'a "b" \\c'
    assert client_settings(LIBRDKAFKA, WITH_PASSWORD, TAP, "w")["sasl.password"] == 'a "b" \\c'
    jaas = client_settings(JAVA, WITH_PASSWORD, TAP, "w")["sasl.jaas.config"]
    assert jaas.endswith(r'ScramLoginModule required username="alice" password="a \"b\" \\c";')
    plain = client_settings(JAVA, WITH_PASSWORD | {"sasl.mechanism": "PLAIN"}, TAP, "w")["sasl.jaas.config"]
    assert "PlainLoginModule" in plain


@pytest.mark.parametrize("kind", [LIBRDKAFKA, JAVA])
def test_the_source_of_tokens_is_made_where_the_client_runs(kind: str) -> None:
    settings, source = take_tokens(client_settings(kind, WITH_TOKENS, TAP, "w"))
    assert source is not None
    assert TOKENS not in settings
    assert "hush" not in str(settings), "the library needs the token, and not the secret"
    assert take_tokens(client_settings(kind, WITH_PASSWORD, TAP, "w"))[1] is None


def test_the_java_library_is_a_folder_a_class_path_or_that_of_kafka_home(tmp_path: Path) -> None:
    libs = tmp_path / "libs"
    libs.mkdir()
    jar = libs / "kafka-clients-4.3.1.jar"
    with pytest.raises(NoJava, match="no kafka-clients jar"):
        find_library(str(libs), {})
    jar.touch()
    assert find_library(str(libs), {}) == f"{libs}/*"
    assert find_library(f"{jar}:{libs}", {}) == f"{jar}:{libs}/*"
    assert find_library(None, {"KAFKA_HOME": str(tmp_path)}) == f"{libs}/*"
    with pytest.raises(NoJava, match="is not named"):
        find_library(None, {})
    with pytest.raises(NoJava, match="missing does not exist"):
        find_library(f"{jar}:{tmp_path / 'missing'}", {})


def test_java_is_that_of_java_home_or_on_the_path_and_has_a_compiler(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    with pytest.raises(NoJava, match="java does not exist"):
        find_java({"JAVA_HOME": str(tmp_path)})
    with pytest.raises(NoJava, match="no Java was found"):
        find_java({"PATH": str(tmp_path)})
    java.touch(mode=0o755)
    with pytest.raises(NoJava, match="without a compiler"):
        find_java({"JAVA_HOME": str(tmp_path)})
    (tmp_path / "bin" / "javac").touch(mode=0o755)
    assert find_java({"JAVA_HOME": str(tmp_path)}) == tmp_path / "bin"
    assert find_java({"PATH": str(tmp_path / "bin")}) == tmp_path / "bin"
