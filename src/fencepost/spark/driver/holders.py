"""Which sink of this process holds a transactional.id: one at a time.

A second one would fence the first. A sink that is done gives its id up to the next sink that needs it: a program that
starts its query again may create a new sink each time, and so does a notebook cell that runs twice.
"""

from __future__ import annotations

from typing import Protocol

from fencepost.spark.failures import SinkError

Key = tuple[str, str]  # bootstrap.servers and transactional.id


class Holder(Protocol):
    def give_up(self) -> bool:
        """Release the id, unless a query of this sink runs, or the sink is in the middle of a write. Has it?"""
        ...


_holders: dict[Key, Holder] = {}


def hold(key: Key, holder: Holder) -> None:
    """Raises SinkError if another sink needs the id still."""
    while (other := _holders.setdefault(key, holder)) is not holder:
        if not other.give_up():
            raise SinkError(
                f"transactional.id {key[1]} is in use by another sink of this process: its query runs, or it is in the "
                "middle of a write\n\nhint: stop the other query, or give this one a transactional.id of its own"
            )


def release(key: Key, holder: Holder) -> None:
    if _holders.get(key) is holder:
        del _holders[key]
