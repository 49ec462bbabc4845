from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.machines.pattern import MAX_LENGTH, BadPattern, matching


@pytest.mark.parametrize(
    ("pattern", "matched", "others"),
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
        ("(?i)Orders", ["orders", "ORDERS"], ["orders-1"]),
        (r".*\bpay\b.*", ["eu-pay-1", "pay"], ["payments", "eu_pay"]),
        ("[[:upper:]]+", ["EU"], ["eu"]),
        (r"\p{Greek}", ["Ω"], ["O"]),
    ],
)
def test_a_pattern_matches_the_whole_text_or_nothing(pattern: str, matched: list[str], others: list[str]) -> None:
    assert matching(pattern, [*matched, *others]) == set(matched)


REFUSED = r"""
( ) a) (a [ [a [b-a] * +a ? a** a+* (*) a{5,2} a{2000} \ \q (a)\1 (?=a) (?!a) (?<=a) (?P=x) [[:foo:]] a{1000}{2}
((a{100}){100}){100}
"""
SLOW = "(a+)+b (a|a)*b (.*)*b .*.*.*.*.*.*b (a?){500}a{500} (x+x+)+y ((a*)*)*b (a|b)*a(a|b){300}c"


@pytest.mark.parametrize("pattern", [*REFUSED.split(), "(" * 5_000, "a" * (MAX_LENGTH + 1), r"(\pL*){100}"])
def test_what_re2_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        matching(pattern, [])


def test_a_refusal_has_the_words_of_re2() -> None:
    with pytest.raises(BadPattern, match=r"^missing \): \(a$"):
        matching("(a", [])
    with pytest.raises(BadPattern, match=r"^pattern too large"):
        matching(r"(\pL*){100}", [])


@pytest.mark.parametrize("pattern", SLOW.split())
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    start = time.process_time()
    assert not matching(pattern, ["a" * 30_000])
    assert time.process_time() - start < 5


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


@settings(max_examples=500)
@given(pattern=patterns(), texts=st.lists(st.text("ab\nc", max_size=6), max_size=8))
def test_it_matches_what_re_matches(pattern: str, texts: list[str]) -> None:
    expected = re.compile(pattern.replace("$", r"\Z"))
    assert matching(pattern, texts) == {text for text in texts if expected.fullmatch(text)}


NAMES = [f"customer.orders.events.eu-central-1.{i:06d}" for i in range(50_000)]


@pytest.mark.parametrize("pattern", [r"customer\.orders\..*", "|".join(f"topic-{i}" for i in range(100)), ".*-(7|8)+"])
def test_a_plain_pattern_is_matched_however_many_texts_there_are(pattern: str) -> None:
    matching(pattern, NAMES)


def test_a_large_pattern_is_held_against_so_many_texts_only() -> None:
    large = "|".join(f"{i}-orders-{i}" for i in range(500))
    assert matching(large, [*NAMES[:1_000], "77-orders-77"]) == {"77-orders-77"}
    with pytest.raises(BadPattern, match="400000000 steps"):
        matching(large, NAMES)
