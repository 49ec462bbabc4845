"""The text of an input, and how an output says which inputs it was made from. Pure.

An input is known by its id, such as `fp-3fa9-000123`: the tag of the run and a number. So a run that follows another
on the same topics does not take outputs of the earlier one for its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator


def input_id(tag: str, number: int) -> str:
    return f"fp-{tag}-{number:06}"


def input_value(template: str, id_: str) -> str:
    """`{id}` is replaced by the id, `{number}` by its number. Other braces stay, so a template can be JSON."""
    return template.replace("{id}", id_).replace("{number}", str(int(id_.rpartition("-")[2])))


def template_of(format_: str) -> str:
    return json.dumps({"id": "{id}"}) if format_ == "json" else "{id}"


class Matching:
    """Finds ids of one run in outputs."""

    def __init__(self, tag: str, pattern: str | None = None) -> None:
        """`pattern` finds an id, or its number, in its first group, or as a whole if it has none. Raises re.error."""
        self._tag = tag
        self._is_own = pattern is None
        self._pattern = re.compile(pattern if pattern is not None else rf"fp-{tag}-\d{{6,}}")

    def ids(self, key: bytes | None, value: bytes | None) -> list[str]:
        """Each id once, although an output may have it in its key and several times in its value."""
        found = (id_ for text in (key, value) if text is not None for id_ in self._in_text(text))
        return list(dict.fromkeys(found))

    def _in_text(self, text: bytes) -> Iterator[str]:
        for match in self._pattern.finditer(text.decode("utf-8", "replace")):
            found = match[1] if self._pattern.groups else match[0]
            if self._is_own or found.startswith(f"fp-{self._tag}-"):
                yield found
            elif found and found.isascii() and found.isdecimal():
                yield input_id(self._tag, int(found))
