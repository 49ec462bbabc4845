"""Large reads of `.log` files for a client, without a copy: the pages of the page cache, mapped.

The kernel copies them into the socket, and nothing else may read them. If the disk fails, or a program cuts the file,
an access to a mapped page ends the process, but a system call that meets such a page only fails. The bytes of a log
never change, and a deleted file lives on while it is mapped. A mapping ends with the last view of it.
"""

from __future__ import annotations

import mmap
import os
from weakref import WeakSet

from fencepost.open_files import share_of_open_files
from fencepost.protocol.batch import Part

# A smaller read is copied: mapping costs five system calls, and a page fault for every 64 KiB.
LEAST_MAPPED_BYTES = 1 << 17
# Each mapping takes a file descriptor. Clients that read slowly must not take those of others, so with a low limit of
# open files there are fewer mappings.
MOST_MAPPINGS = 256


class Mappings:
    """The mappings that answers on their way to clients refer to."""

    def __init__(self) -> None:
        self._living: WeakSet[mmap.mmap] = WeakSet()
        self._limit = share_of_open_files(16, most=MOST_MAPPINGS)

    def __len__(self) -> int:
        return len(self._living)

    def pread(self, fd: int, size_bytes: int, position: int) -> Part:
        """As `os.pread`, or a view of the file."""
        if size_bytes < LEAST_MAPPED_BYTES or len(self._living) >= self._limit:
            return os.pread(fd, size_bytes, position)
        before = position % mmap.ALLOCATIONGRANULARITY
        try:
            pages = mmap.mmap(fd, before + size_bytes, access=mmap.ACCESS_READ, offset=position - before)
        except (OSError, ValueError):
            # The file is too short, or there is no room for a mapping. A plain read works, or says what is wrong.
            return os.pread(fd, size_bytes, position)
        self._living.add(pages)
        return memoryview(pages)[before:]
