"""Search, order and pages of long lists."""

from __future__ import annotations

import pytest

from fencepost.web.page import is_found, shown

ORDERS = {"size": lambda word: len(word), "word": lambda word: word}
WORDS = [f"{n:03}" + "x" * (n % 7) for n in range(120)]


def test_a_page_has_its_rows_and_knows_how_many_there_are() -> None:
    page = shown(WORDS, {"page": "3", "sort": "word"}, ORDERS, "word", page_size=50)
    assert (page.page, page.page_count, page.total) == (3, 3, 120)
    assert page.rows == WORDS[100:]
    assert page.document() == {"page": 3, "page_count": 3, "total": 120, "sort": "word"}


def test_the_other_direction_is_a_minus() -> None:
    page = shown(WORDS, {"sort": "-size"}, ORDERS, "word", page_size=5)
    assert {len(word) for word in page.rows} == {9}
    assert page.sort == "-size"


@pytest.mark.parametrize("asked", ["0", "-3", "x", "", "999999", "1e3", "٣"])
def test_a_page_that_does_not_exist_is_the_nearest(asked: str) -> None:
    page = shown(WORDS, {"page": asked}, ORDERS, "word", page_size=50)
    assert page.page in (1, 3)
    assert page.rows


def test_an_order_that_does_not_exist_is_the_first_one() -> None:
    assert shown(WORDS, {"sort": "__class__"}, ORDERS, "-size").sort == "-size"


def test_an_empty_list_has_one_empty_page() -> None:
    page = shown([], {"page": "7"}, ORDERS, "word")
    assert (page.rows, page.page, page.page_count, page.total) == ([], 1, 1, 0)


def test_a_search_does_not_ask_for_capitals() -> None:
    assert is_found(" SINK ", "orders-sink-3", "7")
    assert is_found("7", "orders-sink-3", "7")
    assert is_found("", "anything")
    assert not is_found("refunds", "orders-sink-3", "7")
