"""A broker of the demo's own, where the user names none."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from fencepost.testing import Broker


@contextmanager
def cluster(bootstrap_servers: str | None) -> Iterator[str]:
    """The bootstrap servers to use: those given, or those of a broker in a temporary folder."""
    if bootstrap_servers is not None:
        yield bootstrap_servers
        return
    with tempfile.TemporaryDirectory(prefix="fencepost-demo-") as folder, Broker(data=folder) as broker:
        yield broker.bootstrap_servers
