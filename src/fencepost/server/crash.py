"""Named points at which a test may kill the process: `fencepost.crash.at=POINT[:N]`, or an order (`control.py`)."""

from __future__ import annotations

import os
import signal

POINTS = (
    "txn.prepare.before",
    "txn.prepare.after",
    "txn.marker.before",
    "txn.marker.after",
    "txn.complete.before",
    "txn.complete.after",
    "offsets.append.before",
    "offsets.append.after",
    "segment.roll",
    "index.write",
    "snapshot.write",
    "metadata.save",
    "retention.delete",
    "clean.install",
    "clean.swap.before",
    "clean.swap.after",
)


class CrashPoints:
    """Kills the process when it reaches the given point for the Nth time."""

    def __init__(self, wanted: str) -> None:
        point, _, times = wanted.partition(":")
        self.set(point, int(times or 1))

    def set(self, point: str, times: int) -> None:
        self._point = point
        self._left = times

    def reach(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
