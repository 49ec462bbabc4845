"""The door of tests/wire: connections pass while it is open."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from threading import Thread

import pytest

from tests.wire.door import Door


@pytest.fixture
def echo_port() -> Iterator[int]:
    """A server that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    while received := connection.recv(100):
                        connection.sendall(received)

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def is_answered(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"hello")
        return connection.recv(100) == b"hello"
    except OSError:
        return False


def test_connections_pass_a_door_only_while_it_is_open(echo_port: int) -> None:
    with Door(echo_port) as door:

        def connect() -> socket.socket:
            return socket.create_connection(("127.0.0.1", door.port), timeout=30)

        with connect() as before:
            assert is_answered(before)
            door.shut()
            assert not is_answered(before)
        with connect() as meanwhile:
            assert not is_answered(meanwhile)
        door.open()
        with connect() as after:
            assert is_answered(after)
