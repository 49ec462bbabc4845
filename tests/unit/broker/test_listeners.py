"""The texts of `listeners`, `advertised.listeners` and `listener.security.protocol.map`."""

from __future__ import annotations

import pytest

from fencepost.broker.config import BadSetting, parse
from fencepost.broker.listeners import (
    BadListener,
    Endpoint,
    format_listener,
    parse_advertised,
    parse_listeners,
    parse_protocol_map,
)
from fencepost.server.addresses import endpoints


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("PLAINTEXT://broker.example.com:19092", ("broker.example.com", 19092)),
        ("plaintext://10.0.0.7:1", ("10.0.0.7", 1)),
        ("PLAINTEXT://[fe80::1]:9092", ("fe80::1", 9092)),
    ],
)
def test_a_listener_is_a_name_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_listeners(text) == parse_advertised(text) == {"PLAINTEXT": address}
    assert parse_listeners(format_listener(*address)) == {"PLAINTEXT": address}


def test_an_empty_host_is_every_address_and_port_0_a_free_one() -> None:
    assert parse_listeners("INSIDE://:9092, OUTSIDE://127.0.0.1:0") == {
        "INSIDE": ("0.0.0.0", 9092),
        "OUTSIDE": ("127.0.0.1", 0),
    }


def test_a_broker_has_the_listeners_of_its_settings_or_the_one_address_it_was_given() -> None:
    assert endpoints(parse({}), "127.0.0.1", 9092) == [Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092)]
    config = parse(
        {
            "listeners": "INSIDE://127.0.0.1:9092,SASL_SSL://0.0.0.0:9093",
            "advertised.listeners": "sasl_ssl://broker.example.com:19093",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,SASL_SSL:SASL_SSL",
        }
    )
    inside, outside = endpoints(config, "127.0.0.1", 1)
    assert inside == Endpoint("INSIDE", "PLAINTEXT", "127.0.0.1", 9092)
    assert outside == Endpoint("SASL_SSL", "SASL_SSL", "0.0.0.0", 9093, ("broker.example.com", 19093))
    assert (outside.uses_tls, outside.uses_sasl, inside.uses_tls, inside.uses_sasl) == (True, True, False, False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("broker:9092", "has no listener name before broker:9092"),
        ("SSL://a:1,ssl://b:2", "names the listener SSL twice"),
        ("PLAINTEXT://broker", "has no HOST:PORT after PLAINTEXT://, but broker"),
        ("PLAINTEXT://:9092", "has no host for the listener PLAINTEXT"),
        ("PLAINTEXT://fe80::1:9092", "has no HOST:PORT after PLAINTEXT://, but fe80::1:9092"),
        ("PLAINTEXT://broker:9092/path", "has the port 9092/path"),
        ("PLAINTEXT://broker:0", "has the port 0"),
        ("PLAINTEXT://broker:65536", "has the port 65536"),
        ("PLAINTEXT://0.0.0.0:9092", "advertises 0.0.0.0, which means every address of a machine"),
        ("PLAINTEXT://[::]:9092", "advertises ::, which means every address of a machine"),
    ],
)
def test_an_address_that_no_client_could_use_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadListener, match="hint: ") as refused:
        parse_advertised(text)
    assert str(refused.value).startswith(said)
    with pytest.raises(BadSetting) as setting:
        parse({"advertised.listeners": text})
    assert str(setting.value).startswith(f"advertised.listeners={text} {said}")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"listeners": "INSIDE://:9092"}, "the listener INSIDE has no protocol"),
        (
            {"listeners": "SSL://:9092", "advertised.listeners": "PLAINTEXT://a:1"},
            "advertised.listeners names the listener PLAINTEXT, but the broker has only SSL",
        ),
        ({"listeners": "SSL://:9092,PLAINTEXT://:9092"}, "the listeners SSL and PLAINTEXT have the same address"),
    ],
)
def test_listeners_that_contradict_each_other_are_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(BadSetting, match="hint: ") as refused:
        endpoints(parse(settings), "127.0.0.1", 9092)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize("text", ["SSL", "INSIDE:TLS", ":SSL", "A:SSL,A:PLAINTEXT"])
def test_a_protocol_map_with_an_unknown_protocol_or_two_for_a_name_is_refused(text: str) -> None:
    with pytest.raises(BadListener):
        parse_protocol_map(text)


def test_a_setting_of_one_listener_comes_before_that_of_all() -> None:
    config = parse({"ssl.client.auth": "required", "listener.name.inside.ssl.client.auth": "none"})
    assert config.for_listener("INSIDE", "ssl.client.auth") == "none"
    assert config.for_listener("OUTSIDE", "ssl.client.auth") == "required"
    assert config.for_listener("OUTSIDE", "ssl.client.auth", is_own=True) == "none"
    with pytest.raises(BadSetting, match=r"unknown setting listener\.name\.inside\.num\.partitions"):
        parse({"listener.name.inside.num.partitions": "3"})
