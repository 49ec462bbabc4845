"""Where a broker listens, and the addresses that it gives to clients."""

from __future__ import annotations

import socket

import pytest

from fencepost.broker.cluster import BrokerAddress
from fencepost.broker.config import parse
from fencepost.broker.listeners import Endpoint
from fencepost.server.addresses import CannotListen, advertised, bind, exposure, listening

BROKERS = [BrokerAddress(1, "127.0.0.1", 9092), BrokerAddress(2, "127.0.0.1", 9093)]


def test_clients_are_given_the_address_that_the_broker_listens_on() -> None:
    assert advertised(BROKERS, None) == BROKERS


def test_every_address_is_advertised_as_the_name_of_the_machine() -> None:
    everywhere = [BrokerAddress(1, "0.0.0.0", 9092)]
    assert advertised(everywhere, None) == [BrokerAddress(1, socket.gethostname(), 9092)]


def test_brokers_of_one_process_are_advertised_with_ports_in_a_row() -> None:
    found = advertised(BROKERS, ("broker.example.com", 19092))
    assert found == [BrokerAddress(1, "broker.example.com", 19092), BrokerAddress(2, "broker.example.com", 19093)]


def test_a_row_of_ports_beyond_the_last_port_is_refused() -> None:
    with pytest.raises(CannotListen, match="the last would be 65536\n\nhint: advertise a port up to 65534"):
        advertised(BROKERS, ("broker.example.com", 65535))


@pytest.mark.parametrize(("host", "is_exposed"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
def test_an_address_that_other_machines_can_reach_needs_a_login_or_permission(host: str, is_exposed: bool) -> None:
    (sock,) = bind(host, 0)  # Bound, and not listening: nothing can connect.
    with sock:
        port = sock.getsockname()[1]
        assert listening([sock], host, 7) == [BrokerAddress(7, host, port)]
        plain = Endpoint("PLAINTEXT", "PLAINTEXT", host, port)
        warning = exposure(parse({"fencepost.allow.unauthenticated": "true"}), plain, [sock])
        assert (warning is not None) is is_exposed
        if not is_exposed:
            assert exposure(parse({}), plain, [sock]) is None
            return
        assert warning is not None
        assert warning.startswith(f"0.0.0.0:{port} can be reached from other machines, without authentication")
        with pytest.raises(CannotListen, match=r"hint: .*fencepost\.allow\.unauthenticated=true"):
            exposure(parse({}), plain, [sock])
        with pytest.raises(CannotListen, match=r"listener SSL at .* without authentication"):
            exposure(parse({"ssl.client.auth": "requested"}), Endpoint("SSL", "SSL", host, port), [sock])
        for secured in ("SASL_PLAINTEXT", "SASL_SSL"):
            assert exposure(parse({}), Endpoint(secured, secured, host, port), [sock]) is None
        assert exposure(parse({"ssl.client.auth": "required"}), Endpoint("SSL", "SSL", host, port), [sock]) is None
