"""The text of `advertised.listeners`."""

from __future__ import annotations

import pytest

from fencepost.broker.advertised import BadListener, format_listener, parse_listener
from fencepost.broker.config import BadSetting, parse


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("PLAINTEXT://broker.example.com:19092", ("broker.example.com", 19092)),
        ("plaintext://10.0.0.7:1", ("10.0.0.7", 1)),
        ("PLAINTEXT://[fe80::1]:9092", ("fe80::1", 9092)),
    ],
)
def test_a_listener_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_listener(text) == address
    assert parse_listener(format_listener(*address)) == address


def test_no_listener_means_that_the_broker_gives_the_address_it_listens_on() -> None:
    assert parse_listener("") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("broker:9092", "has no protocol"),
        ("SSL://broker:9092", "names the listener SSL, but this broker has only PLAINTEXT"),
        ("PLAINTEXT://a:1,PLAINTEXT://b:2", "has 2 addresses, but this broker has one listener"),
        ("PLAINTEXT://broker", "has no HOST:PORT after PLAINTEXT://, but broker"),
        ("PLAINTEXT://:9092", "has no HOST:PORT after PLAINTEXT://, but :9092"),
        ("PLAINTEXT://fe80::1:9092", "has no HOST:PORT after PLAINTEXT://, but fe80::1:9092"),
        ("PLAINTEXT://broker:9092/path", "has the port 9092/path"),
        ("PLAINTEXT://broker:0", "has the port 0"),
        ("PLAINTEXT://broker:65536", "has the port 65536"),
        ("PLAINTEXT://0.0.0.0:9092", "advertises 0.0.0.0, which means every address of a machine"),
        ("PLAINTEXT://[::]:9092", "advertises ::, which means every address of a machine"),
    ],
)
def test_a_listener_that_no_client_could_use_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadListener, match="hint: ") as refused:
        parse_listener(text)
    assert str(refused.value).startswith(said)
    with pytest.raises(BadSetting) as setting:
        parse({"advertised.listeners": text})
    assert str(setting.value).startswith(f"advertised.listeners={text} {said}")
