"""Regular expressions that clients send: consumers subscribe with one, ListTransactions filters by one.

RE2 matches them. It does not backtrack: its work grows with the size of the compiled pattern times the length of the
text, and no further. Every other client waits meanwhile, so two limits keep that work small: `MAX_MEMORY_BYTES` for
a compiled pattern and its cache, `MAX_STEPS` for all texts together.
Apache Kafka uses RE2/J, the implementation of RE2 in Java, for the same two requests.
"""

from __future__ import annotations

from collections.abc import Collection

import re2

MAX_LENGTH = 10_000
# The library keeps the last 128 patterns, so their memory is at most 128 times this.
MAX_MEMORY_BYTES = 256 * 1024
# RE2 takes up to ten nanoseconds for a step, so this is a few seconds in the worst case.
MAX_STEPS = 400_000_000
# A pattern of this size is always affordable, however many texts there are.
SMALL_SIZE = 100

# Differs: RE2/J accepts nested repetitions that multiply to more than 1000, and refuses `\C` and a group name that is
# used twice. Only here is a pattern refused because it has more than 10,000 characters or is too costly to match.


class BadPattern(ValueError):
    """The pattern is not valid, or too costly."""


def matching(source: str, texts: Collection[str]) -> frozenset[str]:
    """The texts that the pattern matches as a whole."""
    if len(source) > MAX_LENGTH:
        raise BadPattern(f"it has {len(source)} characters, the most is {MAX_LENGTH}")
    try:
        pattern = re2.compile(source, _options())
    except re2.error as e:
        reason: bytes = e.args[0]
        raise BadPattern(reason.decode(errors="replace")) from None
    encoded = [(text, text.encode()) for text in texts]
    size, length = pattern.programsize, sum(len(raw) for _, raw in encoded)
    if size > SMALL_SIZE and size * length > MAX_STEPS:
        raise BadPattern(
            f"its compiled size is {size}, which times {length} bytes of names is more than {MAX_STEPS} steps"
        )
    return frozenset(text for text, raw in encoded if pattern.fullmatch(raw))


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = MAX_MEMORY_BYTES
    options.never_capture = True  # The question is only whether a text matches, which is cheaper to answer.
    options.log_errors = False  # RE2 would write to stderr.
    return options
