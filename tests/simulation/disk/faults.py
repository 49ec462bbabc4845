"""What goes wrong under the process: it dies in a change of the disk, or the disk is full."""

from __future__ import annotations

import errno
import random


class Killed(BaseException):
    """The simulated process was killed at this point."""


class Faults:
    """`fuse` is the number of changes that still succeed; the process dies in the next one. If `full`, writes fail.

    The simulation sets these, and `dead` to end the process now.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.clear()

    def clear(self) -> None:
        """A new process, and room on the disk."""
        self.fuse: int | None = None
        self.full = False
        self.dead = False

    def check_alive(self) -> None:
        if self.dead:
            raise Killed

    def strike(self, needs_room: bool = False) -> bool:
        """Whether the process dies in the change that it is about to make."""
        self.check_alive()
        if self.full and needs_room:
            raise OSError(errno.ENOSPC, "No space left on device (simulated)")
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                self.dead = True
                return True
        return False

    def survive(self, needs_room: bool = False) -> None:
        """Raise Killed if the process dies before the change that it is about to make."""
        if self.strike(needs_room):
            raise Killed

    def short_write(self, data: bytes) -> bytes | None:
        """The part of a write that still fits, if the disk becomes full in the middle of it."""
        if self.full and self._rng.random() < 0.3:
            return data[: self._rng.randrange(len(data))]
        return None

    def torn_write(self, data: bytes) -> bytes:
        """The part of a write that was made before the process died in it."""
        return data[: self._rng.randint(0, len(data))]
