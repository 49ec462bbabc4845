"""A disk in memory under the real storage code. It loses what a real disk may lose, and kills the process in a write.

The process can end in two ways:

    kill -9      All writes stay, because the page cache outlives the process. The last write may be torn at any byte.
    power loss   What was synced stays, and of the rest what `content.py` says.

`mounting.py` lets the storage code use it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.simulation.disk.content import Directory, Tree
from tests.simulation.disk.faults import Faults
from tests.simulation.disk.system_calls import Descriptors, Paths


class Disk:
    """One disk, through all the processes that use it one after the other.

    `tree` is its content, `faults` what will go wrong, `paths` and `descriptors` are the system calls of the process.
    """

    def __init__(
        self,
        rng: random.Random,
        root: Directory | None = None,
        has_syncfs: bool = True,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self.has_syncfs = has_syncfs
        self.boot = 1
        self._rng = rng
        self._now_ms = now_ms
        self.tree = Tree(root or Directory())
        self.faults = Faults(rng)
        self.paths = Paths(self.tree, self.faults)
        self.descriptors = Descriptors(self.tree, self.faults, now_ms)

    def restart(self) -> None:
        """A new process after kill -9, with all that the old one wrote."""
        self.descriptors.close_all()
        self.faults.clear()

    def lose_power(self) -> None:
        self.tree.root = self.tree.root.after_power_loss(self._rng)
        self.boot += 1
        self.restart()

    def copy(self) -> Disk:
        """An independent disk with the same content, for experiments."""
        disk = Disk(random.Random(1), self.tree.root.copy(), self.has_syncfs, self._now_ms)
        disk.boot = self.boot
        return disk
