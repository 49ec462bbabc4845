"""What a broker must offer so that transcripts can run on it."""

from __future__ import annotations

from typing import Any, Protocol

from fencepost.machines.txn.states import Txn
from fencepost.protocol.schema import Message


class Target(Protocol):
    """A broker on which transcripts can run."""

    @property
    def now_ms(self) -> int: ...

    # It writes markers at its own pace, so its state may be ahead of the transcript.
    is_independent: bool
    # It gives Apache Kafka's answer (`~ REPLY`) where Fencepost differs on purpose.
    is_apache: bool

    def call(self, request: Message, version: int, client_id: str | None = ...) -> Any: ...

    def advance(self, ms: int) -> None:
        """Let time pass."""
        ...

    def restart(self) -> None:
        """A new process with the same data."""
        ...

    def write_state(self, txn: Txn) -> None:
        """Append a record to `__transaction_state` directly. The coordinator reads it after a restart."""
        ...
