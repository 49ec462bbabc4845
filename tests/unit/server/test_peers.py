"""Connections between nodes over real sockets."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.protocol.messages import MetadataRequest
from fencepost.server.app import new_event_loop
from fencepost.server.complaints import Complaints
from fencepost.server.peers import NodePeers
from fencepost.server.socket_server import SocketServer
from tests.pure_broker import PureBroker

FILES = 20


@pytest.mark.parametrize("new_loop", [new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("ends", ["the asking end", "the other end"])
def test_a_connection_that_ends_while_it_opens_closes_no_file_that_has_its_descriptor_by_then(
    ends: str, new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    """A node stops while another one connects to it."""
    lines: list[str] = []
    socket_server = SocketServer(PureBroker().node, Complaints(lines.append), lambda: None)
    socket_server.is_closing = ends == "the other end"

    async def connect() -> None:
        answers: asyncio.Queue[Any] = asyncio.Queue()
        peers = NodePeers(1, {2: socket_server}, lambda then, response: then(response, 0))
        peers.send(2, MetadataRequest(), 12, lambda response, _: answers.put_nowait(response))
        if ends == "the asking end":
            peers.disconnect()
        assert await answers.get() is None
        socket_server.close()
        # The files get descriptors that the connection had, as soon as it has closed them.
        files = []
        for number in range(FILES):
            files.append(os.open(tmp_path / str(number), os.O_WRONLY | os.O_CREAT))
            await asyncio.sleep(0)
        gc.collect()
        for number, file in enumerate(files):
            assert os.path.samestat(os.fstat(file), os.stat(tmp_path / str(number)))
            os.close(file)

    loop = new_loop()
    try:
        loop.run_until_complete(connect())
    finally:
        loop.close()
