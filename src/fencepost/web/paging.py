"""Search, order and pages of long lists, by the query of an address. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from fencepost.counting import whole_number

T = TypeVar("T")
PAGE_SIZE = 50
MOST_PAGES = 10**9


class ListPage(NamedTuple):
    """One page of a list."""

    rows: Sequence[Any]
    page: int
    page_count: int
    # Of the rows that were found.
    total: int
    sort: str

    def document(self) -> dict[str, Any]:
        """All but the rows, which the caller makes JSON of."""
        return {"page": self.page, "page_count": self.page_count, "total": self.total, "sort": self.sort}


def is_found(search: str, *texts: str) -> bool:
    """Whether one of the texts contains what is searched for; capital letters do not count."""
    wanted = search.strip().casefold()
    return not wanted or any(wanted in text.casefold() for text in texts)


def shown(
    rows: Sequence[T],
    query: Mapping[str, str],
    orders: Mapping[str, Callable[[T], Any]],
    first_order: str,
    page_size: int = PAGE_SIZE,
) -> ListPage:
    """The page that `query` asks for with `page` and `sort`; `-name` is the other direction.

    `first_order` is used if none is asked for, or one that does not exist. Rows that are equal keep their order. A
    page after the last is the last.
    """
    asked = query.get("sort", "")
    sort = asked if asked.removeprefix("-") in orders else first_order
    found = sorted(rows, key=orders[sort.removeprefix("-")], reverse=sort.startswith("-"))
    page_count = max(-(-len(found) // page_size), 1)
    page = min(max(whole_number(query.get("page", "1"), MOST_PAGES) or 1, 1), page_count)
    return ListPage(found[(page - 1) * page_size : page * page_size], page, page_count, len(found), sort)
