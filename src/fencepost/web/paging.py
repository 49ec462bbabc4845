"""One page of a list: searched, sorted and cut on the server, so that a browser never gets all of a large cluster. Pure.

The words of the query are `search`, `sort` (a column; with `-` before it, the largest first) and `page`, from 1 on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

R = TypeVar("R")
PAGE_SIZE = 50
MOST_SEARCH_CHARS = 500


class Paged(NamedTuple):
    rows: tuple[Any, ...]
    # Before the search.
    total: int
    # After it.
    found: int
    page: int
    pages: int
    page_size: int
    search: str
    sort: str


def page_of(
    rows: Sequence[R],
    query: Mapping[str, str],
    *,
    text: Callable[[R], str],
    sorts: Mapping[str, Callable[[R], Any]],
    default: str,
    page_size: int = PAGE_SIZE,
) -> Paged:
    """The page that a query asks for.

    `text` is what is searched in a row; `sorts` has the value of each column to sort by. An unknown column is the
    default, and a page beyond the last is the last.
    """
    search = query.get("search", "").strip()[:MOST_SEARCH_CHARS]
    wanted = search.casefold()
    found = [row for row in rows if wanted in text(row).casefold()] if wanted else list(rows)
    sort = query.get("sort", default)
    if sort.removeprefix("-") not in sorts:
        sort = default
    found.sort(key=sorts[sort.removeprefix("-")], reverse=sort.startswith("-"))
    pages = max(-(-len(found) // page_size), 1)
    page = min(max(_page_number(query.get("page", "")), 1), pages)
    return Paged(
        rows=tuple(found[(page - 1) * page_size : page * page_size]),
        total=len(rows),
        found=len(found),
        page=page,
        pages=pages,
        page_size=page_size,
        search=search,
        sort=sort,
    )


def _page_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 1
