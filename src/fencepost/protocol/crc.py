"""CRC-32C, from the `crc32c` package's compiled module.

The package itself loads a fifth of the standard library to learn its own version, which would be a
large part of the time that a broker takes to start. Only the compiled module is wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


def _load() -> Callable[..., int]:
    package = PathFinder.find_spec("crc32c")
    compiled = package and PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if compiled is None or compiled.loader is None:
        # Installed in a way that we do not know: then as everybody does.
        from crc32c import crc32c as plain

        return plain
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    function: Callable[..., int] = module.crc32c
    return function


crc32c = _load()
