from __future__ import annotations

import re
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.machines.group.consumer.pattern import BadPattern, Pattern, TooMuchWork


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("orders-.*", ["orders-", "orders-17"], ["orders", "x-orders-1"]),
        ("", [""], ["a"]),
        ("a|b|", ["a", "b", ""], ["ab"]),
        (r"txn-\d{1,3}", ["txn-1", "txn-123"], ["txn-", "txn-1234", "txn-x"]),
        ("[a-c_]+", ["abc_"], ["", "d"]),
        ("[^a-c]", ["d", "-"], ["a", "", "dd"]),
        ("[]a]", ["]", "a"], ["[]a]"]),
        ("[a-]", ["a", "-"], ["b"]),
        (r"[\d.]+", ["1.2"], ["a"]),
        (r"\w+\.\w+", ["a_1.b"], ["a.b.c", "a-b"]),
        ("^a$", ["a"], ["aa"]),
        ("^^a", ["a"], []),
        ("a^b", [], ["ab", "a^b"]),
        ("(ab)*c", ["c", "ababc"], ["abac"]),
        ("(?:a|(?P<x>b))?", ["", "a", "b"], ["ab"]),
        ("a{0}b", ["b"], ["ab"]),
        ("a{2,}", ["aa", "aaaa"], ["a"]),
        ("a{,2}", ["a{,2}"], ["a"]),
        ("a+?b??", ["a", "ab"], ["b"]),
        (r"\x41\.\*", ["A.*"], ["A.b"]),
        (".", ["é", "a"], ["\n", ""]),
        ("grün", ["grün"], ["grun"]),
    ],
)
def test_a_pattern_matches_the_whole_text_or_nothing(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [text for text in matching if not compiled.fullmatch(text)] == []
    assert [text for text in others if compiled.fullmatch(text)] == []


REFUSED = r"""
( ) a) (a [ [a [b-a] * +a ? a** a+* (*) a{5,2} a{2000} \ \q (a)\1 (?=a) (?!a) (?<=a) (?P=x) [[:alpha:]] a{1000}{2}
((a{100}){100}){100}
"""
SLOW = "(a+)+b (a|a)*b (.*)*b .*.*.*.*.*.*b (a?){500}a{500} (x+x+)+y ((a*)*)*b"


@pytest.mark.parametrize("pattern", [*REFUSED.split(), "(" * 5_000, "a" * 10_001])
def test_what_re2_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", SLOW.split())
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    start = time.perf_counter()
    with suppress(TooMuchWork):
        assert not Pattern(pattern).fullmatch("a" * 30_000)
    assert time.perf_counter() - start < 5


def patterns() -> st.SearchStrategy[str]:
    atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", "", "^", "$"])
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map("".join),
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}"])).map(lambda t: f"({t[0]}){t[1]}"),
        ),
        max_leaves=8,
    )


@settings(max_examples=500, deadline=None)
@given(pattern=patterns(), texts=st.lists(st.text("ab\nc", max_size=6), max_size=8))
def test_it_matches_what_re_matches(pattern: str, texts: list[str]) -> None:
    compiled, expected = Pattern(pattern), re.compile(pattern.replace("$", r"\Z"))
    for text in texts:
        assert compiled.fullmatch(text) == bool(expected.fullmatch(text)), (pattern, text)


@pytest.mark.parametrize("pattern", [r"customer\.orders\..*", "|".join(f"topic-{i}" for i in range(100)), ".*-(7|8)+"])
def test_a_plain_pattern_takes_a_step_for_each_character(pattern: str) -> None:
    names = [f"customer.orders.events.eu-central-1.{i:06d}" for i in range(20_000)]
    compiled = Pattern(pattern, steps=50_000 + sum(map(len, names)))
    for name in names:
        compiled.fullmatch(name)
    assert compiled.steps_left >= 0
