"""Every Kafka message by its name: `from fencepost.protocol.messages import EndTxnRequest`.

A class is built from its text in `definitions/` when it is first used. The types are in `messages.pyi`, which
`python -m fencepost.protocol.stubs` generates; a test fails while it is out of date.
"""

from __future__ import annotations

import pkgutil
import re
from typing import Any

from fencepost.protocol import schema

_SUFFIX = re.compile(r"(Request|Response|Key|Value)$")
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def _definition_file(name: str) -> str:
    return _WORD.sub("_", _SUFFIX.sub("", name)).lower() + ".txt"


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        text = pkgutil.get_data("fencepost.protocol", f"definitions/{_definition_file(name)}")
    except FileNotFoundError:
        text = None
    for definition in schema.parse(text.decode()) if text else ():
        globals()[definition.name] = schema.build_class(definition)
    if name not in globals():
        raise AttributeError(f"no message is called {name}")
    return globals()[name]
