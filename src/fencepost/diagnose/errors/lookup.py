"""Finds an error by its number, by its name in Kafka, Java or librdkafka, or by a part of a name."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from fencepost.diagnose.errors.entry import ErrorEntry
from fencepost.diagnose.errors.table import TABLE
from fencepost.protocol import errors

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
    if wanted in names:
        found = _by_code(names[wanted])
        assert found is not None
        return found
    codes = dict.fromkeys(code for name, code in sorted(names.items()) if wanted and wanted in name)
    if len(codes) == 1:
        found = _by_code(*codes)
        assert found is not None
        return found
    if not codes:
        # The most similar name first.
        codes = dict.fromkeys(names[name] for name in difflib.get_close_matches(wanted, names, n=3, cutoff=0.7))
    likely = [code for code in codes if code in TABLE] or list(codes)
    return NotFound(asked=asked, similar=tuple(_name_of(code) for code in likely))


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
