"""Replaces attributes of modules and classes for the length of a block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

Patch = tuple[Any, str, Any]  # A module or class, the name of an attribute, its value.
_MISSING = object()


@contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, value in patches:
            before = vars(owner).get(name, _MISSING)
            if before is _MISSING:
                stack.callback(delattr, owner, name)
            else:
                stack.callback(setattr, owner, name, before)
            setattr(owner, name, value)
        yield
