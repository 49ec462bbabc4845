"""CRC-32C, from the compiled module of the package `crc32c`.

Importing the package itself loads a fifth of the standard library, to find out its own version. That would be a large
part of the time that a broker takes to start, so only the compiled module is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


def _load() -> Callable[..., int]:
    package = PathFinder.find_spec("crc32c")
    compiled = package and PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if compiled is None or compiled.loader is None:
        # The package has an unknown structure: import it the ordinary way.
        from crc32c import crc32c as plain

        return plain
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    function: Callable[..., int] = module.crc32c
    return function


crc32c = _load()
