"""Starts a broker for the demo if the user names no cluster."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fencepost.testing import Broker


@contextmanager
def cluster(bootstrap_servers: str | None, settings: Mapping[str, object] | None = None) -> Iterator[str]:
    """Yield `bootstrap_servers` or, if None, those of a new broker in a temporary folder with these settings."""
    if bootstrap_servers is not None:
        yield bootstrap_servers
        return
    with (
        tempfile.TemporaryDirectory(prefix="fencepost-demo-") as folder,
        Broker(data=folder, settings=settings) as broker,
    ):
        yield broker.bootstrap_servers
