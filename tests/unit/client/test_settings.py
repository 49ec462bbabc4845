"""The settings of a client: which values are refused, and with which message."""

from __future__ import annotations

import pytest

from fencepost.client.failures import BadClientSetting
from fencepost.client.settings import parse_settings


@pytest.mark.parametrize(
    "address", ["localhost:²", "localhost:٣", "localhost:0", "localhost:65536", "localhost:-1", "h:" + "9" * 5000]
)
def test_a_port_is_a_number_in_plain_digits(address: str) -> None:
    with pytest.raises(BadClientSetting, match="expected HOST:PORT"):
        parse_settings({"bootstrap.servers": address})


@pytest.mark.parametrize("ms", ["²", "0", "-5", "1.5", "2147483648", "9" * 5000])
def test_a_time_is_a_number_of_milliseconds_that_a_socket_can_wait(ms: str) -> None:
    with pytest.raises(BadClientSetting, match="is not a number of milliseconds from 1 to 2147483647"):
        parse_settings({"bootstrap.servers": "h:1", "request.timeout.ms": ms})
    assert parse_settings({"bootstrap.servers": "h:1", "request.timeout.ms": "1500"}).request_timeout_s == 1.5


@pytest.mark.parametrize("servers", [",", " , "])
def test_a_list_of_no_brokers_is_refused(servers: str) -> None:
    with pytest.raises(BadClientSetting, match="names no broker\n\nhint: "):
        parse_settings({"bootstrap.servers": servers})
    assert parse_settings({"bootstrap.servers": ",h:1,"}).bootstrap == (("h", 1),)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("ssl.enabled.protocols", "OpenSSL"),
        ("sasl.client.callback.handler.class", "oauth_cb makes tokens for OAUTHBEARER"),
        ("sasl.login.refresh.buffer.seconds", "oauth_cb makes tokens for OAUTHBEARER"),
        ("sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.token.endpoint.url"),
    ],
)
def test_a_setting_of_the_java_clients_is_refused_with_its_replacement(name: str, instead: str) -> None:
    with pytest.raises(BadClientSetting) as refused:
        parse_settings({"bootstrap.servers": "h:1", name: "x"})
    problem, _, hint = str(refused.value).partition("\n\nhint: ")
    assert problem == f"{name} is a setting of Java clients, which this client cannot use"
    assert instead in hint
    assert "did you mean" not in hint
