"""The keys of tokens at an address: what goes wrong there ends no more than one attempt."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing
from threading import Thread

import pytest

from fencepost.server.key_sets import open_key_set
from tests.tokens import Provider

WAIT_S = 60


@pytest.fixture
def door() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as made:
        yield made


def test_an_answer_that_is_no_http_ends_one_attempt_and_not_all(door: socket.socket) -> None:
    keys = Provider().key_set()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(keys)

    def serve() -> None:
        for answer in (b"this is not HTTP\r\n\r\n", head + keys):
            connection, _ = door.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

    Thread(target=serve, daemon=True).start()
    lines: list[str] = []
    found = open_key_set(f"http://127.0.0.1:{door.getsockname()[1]}/", 3600, (0.01, 0.01), lines.append)
    end = time.monotonic() + WAIT_S
    while not found.find("first") and time.monotonic() < end:
        time.sleep(0.01)  # The keys arrive in a thread that gives no sign.
    assert found.find("first")
    assert len(lines) == 1
    assert "cannot be read" in lines[0]
