"""Runs in a Python worker of an executor, which may lack this package: only the standard library, no import of ours."""

from __future__ import annotations

import json
import platform
import socket
from collections.abc import Sequence

TIMEOUT_S = 5.0


def probe(addresses: Sequence[tuple[str, int]]) -> str:
    """As JSON: the host of the executor, its Python, and for each address why it cannot be reached, null if it can."""
    found: list[str | None] = []
    for host, port in addresses:
        try:
            socket.create_connection((host, port), TIMEOUT_S).close()
            found.append(None)
        except OSError as e:
            found.append(str(e) or type(e).__name__)
    return json.dumps({"host": socket.gethostname(), "python": platform.python_version(), "problems": found})
