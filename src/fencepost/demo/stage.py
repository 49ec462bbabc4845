"""Where a demo plays: on the command line it plays to its end, on a page it pauses after each step."""

from __future__ import annotations

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
