"""Strangers that connect to the lease port as often as they can."""

from __future__ import annotations

import socket
import threading
from collections import deque
from contextlib import suppress

from fencepost.spark.lease.wire import LENGTH

# The first bytes of a ClientHello: a handshake that the peer does not finish.
BEGUN_HANDSHAKE = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
NO_HELLO = LENGTH.pack(3) + b"\xff\xff\xff"
SAID = (b"", b"", BEGUN_HANDSHAKE, NO_HELLO)
HELD = 100


class Attack:
    """Connects until the block ends, and never says who it is. The newest connections stay open."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.count = 0
        self._address = address
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Attack:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        held: deque[socket.socket] = deque()
        while not self._ends.is_set():
            held.append(socket.create_connection(self._address, 20))
            with suppress(OSError):  # The driver may have closed it already.
                held[-1].sendall(SAID[self.count % len(SAID)])
            self.count += 1
            if len(held) > HELD:
                held.popleft().close()
        for one in held:
            one.close()
