"""The table of errors by code, and the search in it: by number, by a name or a part of one, or by a client's message.

It has a row for every code that a transactional producer, or the consumer beside it, can receive. `protocol/errors.py`
says which codes are retriable. One test compares the Java names with the classes of Apache Kafka, another the names of
librdkafka with the library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fencepost.diagnose.errors.entry import ErrorEntry
from fencepost.diagnose.errors.kafka_codes import KAFKA_CODES
from fencepost.diagnose.errors.librdkafka import LIBRDKAFKA_CODES, LIBRDKAFKA_TEXTS
from fencepost.protocol import errors
from fencepost.spelling import similar_to

_ROWS = (*KAFKA_CODES, *LIBRDKAFKA_CODES)
TABLE: dict[int, ErrorEntry] = {entry.code: entry for entry in _ROWS}
assert len(TABLE) == len(_ROWS), "a code is in the table twice"


# What users say, without the underscore of librdkafka's own code.
_SPOKEN = {"fenced": errors.PRODUCER_FENCED}
# As confluent-kafka prints a KafkaError, and as a word of a log names an error.
_VALUE = re.compile(r"\bval=(-?\d+)")
_NAME = re.compile(r"\w+Exception\b|\b_?[A-Z]+(?:_[A-Z]+)+\b")
_WHERE = re.compile(r"^(Broker|Local): ")
# A shorter text is part of too many sentences.
LEAST_TEXT = 8
_PREFIXES = re.compile(r"^(org\.apache\.kafka\.common\.errors\.|rd_kafka_resp_err_|kafkaerror\.)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherError:
    """A code that no transactional client receives, so that the table has no row for it."""

    code: int
    name: str
    retriable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFound:
    """No error has this name, or several have it; `similar` has the likely ones."""

    asked: str
    similar: tuple[str, ...]


def look_up(text: str) -> ErrorEntry | OtherError | NotFound:
    asked = text.strip()
    if re.fullmatch(r"[+-]?\d+", asked):
        return _by_code(int(asked)) or NotFound(asked=asked, similar=())
    wanted = _folded(asked)
    names = _names()
    code = _SPOKEN.get(asked.lower(), names.get(wanted, _in_text(asked, names)))
    if code is not None:
        found = _by_code(code)
        assert found is not None
        return found
    codes = dict.fromkeys(code for name, code in sorted(names.items()) if wanted and wanted in name)
    if len(codes) == 1:
        found = _by_code(*codes)
        assert found is not None
        return found
    if not codes:
        # The most similar name first.
        codes = dict.fromkeys(names[name] for name in similar_to(wanted, names, cutoff=0.7))
    likely = [code for code in codes if code in TABLE] or list(codes)
    return NotFound(asked=asked, similar=tuple(_name_of(code) for code in likely))


def _in_text(text: str, names: Mapping[str, int]) -> int | None:
    """The error that a line of a log is about: by its number, its text in librdkafka, or a name in it."""
    if (value := _VALUE.search(text)) and _by_code(int(value[1])) is not None:
        return int(value[1])
    folded = _folded(text)
    texts = {_folded(_WHERE.sub("", known)): code for code, known in LIBRDKAFKA_TEXTS.items()}
    # The longest: the text of one error may be part of another's.
    inside = max((known for known in texts if len(known) >= LEAST_TEXT and known in folded), key=len, default=None)
    if inside is not None:
        return texts[inside]
    named = [names[_folded(word)] for word in _NAME.findall(text) if _folded(word) in names]
    return named[0] if named else None


def _by_code(code: int) -> ErrorEntry | OtherError | None:
    if code in TABLE:
        return TABLE[code]
    if code in errors.NAMES:
        return OtherError(code=code, name=errors.name_of(code), retriable=code in errors.RETRIABLE)
    return None


def _name_of(code: int) -> str:
    return TABLE[code].name if code in TABLE else errors.name_of(code)


def _names() -> dict[str, int]:
    """Every name of every error. Kafka's names come last, so that they override the abbreviations of the clients."""
    names = {_folded(entry.librdkafka): code for code, entry in TABLE.items() if entry.librdkafka}
    names |= {_folded(entry.java): code for code, entry in TABLE.items() if entry.java}
    names |= {_folded(name): code for code, name in errors.NAMES.items()}
    return names


def _folded(name: str) -> str:
    """`InvalidProducerEpochException`, `INVALID_PRODUCER_EPOCH` and `invalid-producer-epoch` are one name."""
    bare = _PREFIXES.sub("", name)
    return re.sub(r"[^a-z0-9]", "", bare.lower()).removesuffix("exception")
