"""Documents as JSON values, for `--json` and for the pages of the workbench."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any


def plain(value: Any) -> Any:
    """A document as JSON values: a dataclass or named tuple becomes an object, an enum its name in lower case."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return {name: plain(field) for name, field in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(key): plain(field) for key, field in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.name.lower()
    return value
