"""A fault and its words, and the faults of one broker or one tap: which requests they strike, and how often.

A fault strikes at the request, before the broker sees it, or at the reply, when the broker has carried out the request
and the client does not know it. Its words are the arguments of a call, or a line such as `delay EndTxn 2s times=3`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from fencepost.faults.errors_in_replies import can_carry_error
from fencepost.protocol import errors
from fencepost.protocol.apis import api_names
from fencepost.spelling import did_you_mean

ERROR, DELAY, DROP, DISCONNECT, DUPLICATE = ACTIONS = ("error", "delay", "drop", "disconnect", "duplicate")
REQUEST, REPLY = MOMENTS = ("request", "reply")


class BadFault(ValueError):
    """The test asked for an impossible fault. The message says what to ask for instead."""


@dataclass(slots=True, eq=False)
class Fault:
    """The effect, the requests that it hits, and how often. None: all APIs, all clients, until the fault is removed."""

    action: str
    at: str
    api_key: int | None = None
    client_id: str | None = None  # A glob pattern: `svc-*`.
    times_left: int | None = None
    skip: int = 0
    error_code: int = 0
    delay_ms: int = 0
    hits: int = 0
    # The connections that it left without an answer.
    hanging: list[Any] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return self.times_left == 0

    def concerns(self, api_key: int, client_id: str) -> bool:
        return (
            not self.is_over
            and self.api_key in (None, api_key)
            and (self.client_id is None or fnmatchcase(client_id, self.client_id))
        )

    def strikes(self) -> bool:
        """Whether the fault strikes this request, which concerns it; counts the request."""
        if self.is_over:
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times_left is not None:
            self.times_left -= 1
        self.hits += 1
        return True


class FaultTable:
    """The faults of one process by their numbers, in the order in which they were set."""

    def __init__(self) -> None:
        self._by_number: dict[int, Fault] = {}
        self._last_number = 0

    def add(self, fault: Fault) -> int:
        """Set the fault; return its number."""
        self._last_number += 1
        self._by_number[self._last_number] = fault
        return self._last_number

    def hits(self, number: int) -> int:
        return self.find(number).hits

    def remove(self, number: int) -> list[Any]:
        """End the fault; return the connections that it left without an answer."""
        fault = self.find(number)
        fault.times_left = 0
        hanging, fault.hanging = fault.hanging, []
        return hanging

    def numbers(self) -> list[int]:
        return list(self._by_number)

    @property
    def is_idle(self) -> bool:
        return all(fault.is_over for fault in self._by_number.values())

    def concerning(self, api_key: int, client_id: str, at: str) -> list[Fault]:
        return [f for f in self._by_number.values() if f.at == at and f.concerns(api_key, client_id)]

    def find(self, number: int) -> Fault:
        if number not in self._by_number:
            raise BadFault(f"fault {number} is not known here\n\nhint: a broker that is restarted forgets its faults")
        return self._by_number[number]


# Where a fault strikes unless it says otherwise.
USUAL_MOMENTS = {ERROR: REQUEST, DUPLICATE: REQUEST}
EXAMPLE = "for example 'delay EndTxn 2s', 'drop EndTxn reply' or 'error EndTxn NOT_COORDINATOR times=3'"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)", re.ASCII)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000}
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
# The requests behind the calls of Kafka's clients.
REQUESTS_OF_CALLS = {
    "inittransactions": "InitProducerId",
    "sendoffsetstotransaction": "TxnOffsetCommit",
    "committransaction": "EndTxn",
    "aborttransaction": "EndTxn",
}
MOST_LISTED = 12


def parse_fault(
    action: str,
    *,
    at: str,
    api: str | None = None,
    client_id: str | None = None,
    times: int | None = None,
    skip: int = 0,
    error: str | int = 0,
    ms: int = 0,
    actions: Sequence[str] = ACTIONS,
) -> Fault:
    """`actions`: those that are possible here. Raises BadFault."""
    if action not in actions:
        raise _unknown("action", action, actions)
    if at not in MOMENTS:
        raise _unknown("moment", at, MOMENTS)
    if times is not None and times < 1:
        raise BadFault(f"times={times} never happens\n\nhint: 1 or more; None means: until it is cleared")
    if skip < 0 or ms < 0:
        raise BadFault(f"skip={skip} and ms={ms} must not be negative\n\nhint: leave them out")
    if action == DUPLICATE and at != REQUEST:
        raise BadFault("duplicate at the reply is not possible\n\nhint: a client expects one reply; leave `reply` out")
    api_key = None if api is None else _api_key(api)
    error_code = 0
    if action == ERROR:
        error_code = _error_code(error)
        if api_key is None:
            raise BadFault(
                "an error needs the name of an API, since each API has its own place for it\n\n"
                "hint: for example 'error EndTxn NOT_COORDINATOR', and one fault for each API"
            )
        if not can_carry_error(api_key):
            raise BadFault(f"the reply of {api} has no place for an error\n\nhint: drop or disconnect it instead")
    return Fault(action, at, api_key, client_id, times, skip, error_code, ms)


def parse_line(line: str) -> Fault:
    """`ACTION API [ERROR|DURATION] [request|reply] [times=N|always] [skip=N] [client_id=PATTERN]`. Raises BadFault.

    `*` in place of the API means every API. A fault strikes once, unless `times` says otherwise.
    """
    words = line.split()
    if len(words) < 2:
        raise BadFault(f"{line!r} is no fault\n\nhint: name an action and an API, {EXAMPLE}")
    action, api, *rest = words
    if action not in ACTIONS:
        raise _unknown("action", action, ACTIONS)
    at, error, ms, skip = USUAL_MOMENTS.get(action, REPLY), "", 0, 0
    times: int | None = 1
    client_id: str | None = None
    for word in rest:
        name, equals, value = word.partition("=")
        if not equals and word in MOMENTS:
            at = word
        elif name == "at" and value in MOMENTS:
            at = value
        elif name == "times" and (value == "always" or _NUMBER.fullmatch(value)):
            times = None if value == "always" else int(value)
        elif name == "skip" and _NUMBER.fullmatch(value):
            skip = int(value)
        elif name == "client_id" and value:
            client_id = value
        elif action == DELAY and not equals and (found := _DURATION.fullmatch(word)):
            ms = round(float(found[1]) * _UNITS_MS[found[2]])
        elif action == ERROR and not equals and not error:
            error = word
        else:
            raise BadFault(
                f"{word!r} has no meaning in {line!r}\n\nhint: what follows the API is an error or a duration such as "
                "500ms, request or reply, times=N or times=always, skip=N, client_id=PATTERN"
            )
    if action == DELAY and not ms:
        raise BadFault(f"{line!r} does not say how long\n\nhint: add a duration, for example 'delay {api} 2s'")
    if action == ERROR and not error:
        raise BadFault(
            f"{line!r} does not say which error\n\nhint: add its name, for example 'error EndTxn NOT_COORDINATOR'"
        )
    code = int(error) if _NUMBER.fullmatch(error) else error
    return parse_fault(
        action, at=at, api=None if api == "*" else api, client_id=client_id, times=times, skip=skip, error=code, ms=ms
    )


def _api_key(name: str) -> int:
    """Kafka has two spellings: EndTxn in the protocol, END_TXN in its code."""
    by_letters = {known.lower(): key for key, known in api_names().items()}
    letters = name.replace("_", "").lower()
    if letters in by_letters:
        return by_letters[letters]
    meant = REQUESTS_OF_CALLS.get(letters, name)
    raise _unknown("API", name, api_names().values(), meant, _letters_of_api)


def _letters_of_api(name: str) -> str:
    """Kafka writes Txn in the names of some APIs and Transaction in those of others."""
    letters = name.replace("_", "").lower()
    return letters.removesuffix("request").removesuffix("response").replace("transaction", "txn")


def _letters_of_error(name: str) -> str:
    """PRODUCER_FENCED is ProducerFencedException in Java."""
    return name.replace("_", "").lower().removesuffix("exception")


def _error_code(error: str | int) -> int:
    names = {name: code for name, code in vars(errors).items() if name.isupper() and isinstance(code, int)}
    code = error if isinstance(error, int) else names.get(error)
    if code is None or code not in names.values():
        raise _unknown("error", str(error), names, folded=_letters_of_error)
    if code == errors.NONE:
        raise BadFault("NONE is no error\n\nhint: name one, such as COORDINATOR_NOT_AVAILABLE")
    return code


def _unknown(
    kind: str, given: str, known: Iterable[str], meant: str | None = None, folded: Callable[[str], str] = str.lower
) -> BadFault:
    """`meant` is what to compare with the known names, if it is not what was given."""
    known = list(known)
    hint = did_you_mean(meant or given, known, cutoff=0.5, folded=folded)
    if hint is None:
        more = f" and {len(known) - MOST_LISTED} more" if len(known) > MOST_LISTED else ""
        hint = f"known are {', '.join(known[:MOST_LISTED])}{more}"
    return BadFault(f"{given!r} is no {kind} that Fencepost knows\n\nhint: {hint}")
