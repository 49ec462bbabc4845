"""A door in front of a port on loopback: connections pass through it while it is open.

    with Door(9092) as door:
        socket.create_connection(("127.0.0.1", door.port))
        door.shut()             # Ends all connections, and takes no more, until `open`.

Unlike `proxy.py` it does not look at what passes.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Self

CHUNK_BYTES = 1 << 16
HOST = "127.0.0.1"


class Door:
    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._is_open = True
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._passing: set[asyncio.StreamWriter] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._serve())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def shut(self) -> None:
        self._run(self._set(False))

    def open(self) -> None:
        self._run(self._set(True))

    def _run(self, work: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _serve(self) -> None:
        self._server = await asyncio.start_server(self._pass_on, sock=self._listener)

    async def _end(self) -> None:
        self._server.close()
        await self._set(False)
        passing = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*passing, return_exceptions=True)

    async def _set(self, is_open: bool) -> None:
        self._is_open = is_open
        for writer in () if is_open else self._passing:
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there = await asyncio.open_connection(HOST, self._target_port)
        except OSError:
            writer.transport.abort()
            return
        self._passing |= {writer, there}
        if not self._is_open:
            await self._set(False)
        await asyncio.gather(self._pump(reader, there), self._pump(there_reader, writer))
        self._passing -= {writer, there}

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                writer.write(chunk)
                await writer.drain()
        writer.transport.abort()  # Half a connection is of no use.
