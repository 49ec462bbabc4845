"""How long the tasks of a transaction waited for acknowledgements that were overdue. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class Stalls:
    """An acknowledgement is overdue after a hundredth of the time that a lease may last."""

    lease_timeout_ms: int
    total_ms: int = 0
    _looked_ms: int = 0

    def look(self, deadlines: Iterable[int], now_ms: int) -> None:
        """To be called before a lease is given back, and now and then. deadlines: of all leases, oldest first."""
        oldest_ms = next(iter(deadlines), None)
        if oldest_ms is not None:
            overdue_ms = oldest_ms - self.lease_timeout_ms * 99 // 100
            self.total_ms += max(0, now_ms - max(overdue_ms, self._looked_ms))
        self._looked_ms = now_ms
