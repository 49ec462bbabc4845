"""Where a demo plays: on which broker, and on the command line to its end or on a page with a pause after each step."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fencepost.testing import Broker

# The default of librdkafka.
TRANSACTION_TIMEOUT_MS = 60_000


class Stage:
    """The stage of the command line: a step waits for nothing, and time passes by itself."""

    # A transaction that waits for its next step must not time out meanwhile.
    transaction_timeout_ms = TRANSACTION_TIMEOUT_MS

    def step(self, sentence: str) -> None:
        """The demo has just done what the sentence says."""

    def let_time_pass(self, ms: int) -> None:
        """The demo waits for something that happens after this time."""

    def enter(self, broker: Broker) -> None:
        """The next steps play on this broker, which the demo has started."""


COMMAND_LINE = Stage()


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
