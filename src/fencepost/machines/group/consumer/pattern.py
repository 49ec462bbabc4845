"""Patterns of clients, matched in time that grows with the text alone: no pattern can keep the broker busy.

Kafka matches with RE2, which does not backtrack; Python's `re` does, and a short pattern can take it years. Here,
too, a pattern becomes a machine that is in several states at once, and reads the text once. The sets of states
that were met are remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

MAX_REPEAT = 1000  # RE2's.
MAX_LENGTH = 10_000
MAX_STATES = 2_000
MAX_DEPTH = 100
MAX_REMEMBERED = 10_000
MAX_CHAR = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]
ANY: Ranges = ((0, ord("\n") - 1), (ord("\n") + 1, MAX_CHAR))
DIGIT: Ranges = ((ord("0"), ord("9")),)
WORD: Ranges = (*DIGIT, (ord("A"), ord("Z")), (ord("_"), ord("_")), (ord("a"), ord("z")))
SPACE: Ranges = ((9, 10), (12, 13), (32, 32))
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}


# Differs: of RE2's syntax, word boundaries, flags such as `(?i)` and classes by name are not understood.


class BadPattern(ValueError):
    """The pattern cannot be understood, or is too large."""


class TooMuchWork(Exception):
    """The steps that the caller allowed are used up."""


class State(NamedTuple):
    """Reads one character, or none (`ranges` is None) and goes on to several states; `at` says where it may do that."""

    ranges: Ranges | None
    nexts: list[int]
    at: str = ""  # ^ or $: only there.


class Pattern:
    """A pattern that must match all of a text. `steps_left` falls with the work done, over all texts."""

    def __init__(self, source: str, steps: int = 5_000_000) -> None:
        if len(source) > MAX_LENGTH:
            raise BadPattern(f"the pattern has {len(source)} characters, the most is {MAX_LENGTH}")
        self._states: list[State] = []
        self._end = self._add(None)
        self._start = _Parser(source, self._add, self._states).parse(self._end)
        self._remembered: dict[tuple[frozenset[int], str, bool], frozenset[int]] = {}
        self.steps_left = steps
        self._first = self._spread([self._start], is_begin=True, is_end=False)

    def _add(self, ranges: Ranges | None, *nexts: int, at: str = "") -> int:
        if len(self._states) >= MAX_STATES:
            raise BadPattern(f"the pattern is too large: it has more than {MAX_STATES} states")
        self._states.append(State(ranges, list(nexts), at))
        return len(self._states) - 1

    def fullmatch(self, text: str) -> bool:
        if not text:
            return self._end in self._spread([self._start], is_begin=True, is_end=True)
        states = self._first
        last = len(text) - 1
        for i, char in enumerate(text):
            if not states:
                return False
            is_end = i == last
            following = self._remembered.get((states, char, is_end))
            if following is None:
                following = self._step(states, char, is_end)
                if len(self._remembered) >= MAX_REMEMBERED:
                    self._remembered.clear()
                self._remembered[states, char, is_end] = following
            else:
                self._work(1)
            states = following
        return self._end in states

    def _step(self, states: frozenset[int], char: str, is_end: bool) -> frozenset[int]:
        code = ord(char)
        self._work(len(states))
        reached: list[int] = []
        for index in states:
            ranges = self._states[index].ranges
            if ranges is not None and any(first <= code <= last for first, last in ranges):
                reached += self._states[index].nexts
        return self._spread(reached, is_begin=False, is_end=is_end)

    def _spread(self, indexes: list[int], is_begin: bool, is_end: bool) -> frozenset[int]:
        """These states, and all that can be reached from them without reading."""
        found: set[int] = set()
        while indexes:
            index = indexes.pop()
            if index in found:
                continue
            state = self._states[index]
            if (state.at == "^" and not is_begin) or (state.at == "$" and not is_end):
                continue
            found.add(index)
            if state.ranges is None:
                indexes += state.nexts
        self._work(len(found))
        return frozenset(found)

    def _work(self, steps: int) -> None:
        self.steps_left -= steps
        if self.steps_left < 0:
            raise TooMuchWork


# A piece of a pattern, as a function from the state that follows it to the state that begins it.
Piece = Callable[[int], int]


class _Parser:
    def __init__(self, source: str, add: Callable[..., int], states: list[State]) -> None:
        self._source = source
        self._pos = 0
        self._add = add
        self._states = states
        self._depth = 0

    def parse(self, end: int) -> int:
        piece = self._alternatives()
        if self._pos < len(self._source):
            raise BadPattern(f"there is a ) too many at {self._pos}")
        return piece(end)

    def _peek(self) -> str:
        return self._source[self._pos : self._pos + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise BadPattern("the pattern ends too early")
        self._pos += 1
        return char

    def _alternatives(self) -> Piece:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise BadPattern(f"the pattern is nested deeper than {MAX_DEPTH}")
        pieces = [self._sequence()]
        while self._peek() == "|":
            self._pos += 1
            pieces.append(self._sequence())
        self._depth -= 1
        if len(pieces) == 1:
            return pieces[0]
        return lambda after: self._add(None, *[piece(after) for piece in pieces])

    def _sequence(self) -> Piece:
        pieces: list[Piece] = []
        while self._peek() not in ("", "|", ")"):
            pieces.append(self._repeated())

        def sequence(after: int) -> int:
            for piece in reversed(pieces):
                after = piece(after)
            return after

        return sequence

    def _repeated(self) -> Piece:
        at = self._pos
        piece = self._one()
        bounds = self._bounds()
        if bounds is None:
            return piece
        if self._source[at] in "^$":
            raise BadPattern(f"nothing to repeat at {at}")
        if self._peek() == "?":
            self._pos += 1  # Lazy: for a match of the whole text it makes no difference.
        if self._bounds() is not None:
            raise BadPattern(f"a repetition of a repetition at {at}")
        least, most = bounds

        def repeated(after: int) -> int:
            if most is None:
                loop = self._add(None, after)
                self._states[loop].nexts.append(piece(loop))
                after = loop
            else:
                end = after
                for _ in range(most - least):
                    after = self._add(None, end, piece(after))
            for _ in range(least):
                after = piece(after)
            return after

        return repeated

    def _bounds(self) -> tuple[int, int | None] | None:
        char = self._peek()
        if char == "{":
            return self._counted()
        if char not in ("*", "+", "?") or not char:
            return None
        self._pos += 1
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]

    def _counted(self) -> tuple[int, int | None] | None:
        close = self._source.find("}", self._pos)
        least, comma, most = self._source[self._pos + 1 : close].partition(",")
        if close < 0 or not _is_number(least) or (most and not _is_number(most)):
            return None  # As RE2 does: a brace that is no repetition is a brace.
        self._pos = close + 1
        low, high = int(least), (None if comma and not most else int(most or least))
        if low > MAX_REPEAT or (high is not None and not low <= high <= MAX_REPEAT):
            raise BadPattern(f"a repetition of {least} to {most or least}, the most is {MAX_REPEAT}")
        return low, high

    def _one(self) -> Piece:
        at = self._pos
        char = self._take()
        if char == "(":
            return self._group(at)
        if char == "[":
            return self._reading(self._char_class())
        if char == ".":
            return self._reading(ANY)
        if char in "^$":
            return lambda after: self._add(None, after, at=char)
        if char in "*+?":
            raise BadPattern(f"nothing to repeat at {at}")
        if char == "\\":
            return self._escape()
        return self._reading(((ord(char), ord(char)),))

    def _reading(self, ranges: Ranges) -> Piece:
        return lambda after: self._add(ranges, after)

    def _group(self, at: int) -> Piece:
        if self._peek() == "?":
            end = self._pos + 2
            if self._source.startswith("?P<", self._pos) or self._source.startswith("?<", self._pos):
                end = self._source.find(">", self._pos) + 1
                name = self._source[self._pos : end].partition("<")[2][:-1]
                if not name.isidentifier():
                    raise BadPattern(f"a group at {at} that is not understood")
            elif not self._source.startswith("?:", self._pos):
                raise BadPattern(f"a group at {at} that is not understood")
            self._pos = end
        piece = self._alternatives()
        if self._peek() != ")":
            raise BadPattern(f"the ( at {at} is not closed")
        self._pos += 1
        return piece

    def _escape(self) -> Piece:
        char = self._peek()
        if char in ("A", "z"):
            self._pos += 1
            return lambda after: self._add(None, after, at="^" if char == "A" else "$")
        return self._reading(self._escaped_chars())

    def _escaped_chars(self) -> Ranges:
        at = self._pos
        char = self._take()
        named = {"d": DIGIT, "w": WORD, "s": SPACE}.get(char.lower())
        if named is not None:
            return named if char.islower() else _others(named)
        if char == "x":
            code = self._source[self._pos : self._pos + 2]
            if len(code) == 2 and all(c in "0123456789abcdefABCDEF" for c in code):
                self._pos += 2
                return ((int(code, 16), int(code, 16)),)
        elif char in _ESCAPED:
            return ((ord(_ESCAPED[char]), ord(_ESCAPED[char])),)
        elif char.isascii() and not char.isalnum():
            return ((ord(char), ord(char)),)
        raise BadPattern(f"the escape \\{char} at {at} is not understood")

    def _char_class(self) -> Ranges:
        at = self._pos
        is_negated = self._peek() == "^"
        self._pos += is_negated
        ranges: list[tuple[int, int]] = []
        is_first = True
        while (char := self._take()) != "]" or is_first:
            is_first = False
            if char == "[" and self._peek() == ":":
                raise BadPattern(f"the named class at {at} is not understood")
            found = self._escaped_chars() if char == "\\" else ((ord(char), ord(char)),)
            if self._peek() == "-" and self._source[self._pos + 1 : self._pos + 2] not in ("]", ""):
                self._pos += 1
                last = self._take()
                ends = self._escaped_chars() if last == "\\" else ((ord(last), ord(last)),)
                if len(found) > 1 or len(ends) > 1 or found[0][0] > ends[0][0]:
                    raise BadPattern(f"a range in the class at {at} makes no sense")
                found = ((found[0][0], ends[0][0]),)
            ranges += found
        return _others(tuple(ranges)) if is_negated else tuple(ranges)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4


def _others(ranges: Ranges) -> Ranges:
    """Every character that is not in the ranges."""
    found = []
    begin = 0
    for first, last in sorted(ranges):
        if first > begin:
            found.append((begin, first - 1))
        begin = max(begin, last + 1)
    if begin <= MAX_CHAR:
        found.append((begin, MAX_CHAR))
    return tuple(found)
