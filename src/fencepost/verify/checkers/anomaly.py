"""An anomaly: what a checker found, and the events of the history that prove it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.verify.history import Event


class Anomaly(NamedTuple):
    kind: str  # A name of `KINDS`.
    what: str
    proof: tuple[Event, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"
