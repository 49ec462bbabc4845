"""One page of a list, whatever the query says."""

from __future__ import annotations

import pytest

from fencepost.web.paging import Paged, page_of

ROWS = [f"id-{n:03}" for n in range(120)]


def page(**query: str) -> Paged:
    return page_of(ROWS, query, text=str, sorts={"name": str, "last": lambda row: row[-1]}, default="name")


def test_a_page_is_a_part_of_the_sorted_rows() -> None:
    first = page()
    assert (first.rows[0], len(first.rows), first.total, first.found, first.pages) == ("id-000", 50, 120, 120, 3)
    assert (page(page="3").rows[0], len(page(page="3").rows)) == ("id-100", 20)
    assert page(sort="-name").rows[0] == "id-119"
    assert page(sort="last").rows[1] == "id-010"


def test_a_search_ignores_case_and_counts_what_it_finds() -> None:
    found = page(search=" ID-11 ")
    assert (found.total, found.found, found.pages, found.search) == (120, 10, 1, "ID-11")
    nothing = page(search="<script>")
    assert (nothing.rows, nothing.found, nothing.pages, nothing.page) == ((), 0, 1, 1)


@pytest.mark.parametrize(("asked", "shown"), [("0", 1), ("-5", 1), ("x", 1), ("²", 1), ("99", 3), ("9" * 5000, 1)])
def test_a_page_that_is_not_there_is_the_nearest_one(asked: str, shown: int) -> None:
    assert page(page=asked).page == shown


def test_an_unknown_column_is_the_default() -> None:
    assert page(sort="__class__").sort == "name"
    assert page(sort="--name").sort == "name"
