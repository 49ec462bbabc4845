"""What a page of the workbench is: an address, a question to the cluster, a script for the browser, and actions.

Long lists have a search, an order and pages, by the query of the address.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from fencepost.counting import whole_number
from fencepost.web.cluster import WatchedCluster

Document = Mapping[str, Any]
Params = Mapping[str, str]
# Blocking, in a worker thread. The arguments are the cluster, the parameters of the address, and its query.
Ask = Callable[[WatchedCluster, Params, Mapping[str, str]], Document]
# The same for an action: the third argument is the JSON document that the browser sent. The answer has a `text`, in
# which a line is a paragraph.
Act = Callable[[WatchedCluster, Params, Mapping[str, Any]], Document]

REFRESH_S = 1.0


class SubjectNotFound(Exception):
    """There is no such topic, transactional id, …: the message says which."""


class PageRefused(Exception):
    """An action or a question makes no sense as it was asked: the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAction:
    # What the action would do, which is shown before the user confirms. Changes nothing. If the answer has an `about`,
    # the browser sends it back to `do`, which can refuse if that has changed since.
    says: Act
    # Does it, and says what changed.
    do: Act
    # False only for what does not touch the user's cluster.
    needs_permission: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    # As Starlette writes it: `/txn/{transactional_id:text}`. `:text` takes every character, also slashes.
    path: str
    # The module in static/pages that draws the document.
    script: str
    # May name the parameters of the address: `Transaction {transactional_id}`.
    title: str
    ask: Ask
    # The word in the navigation; None: the page is reached by links.
    nav: str | None = None
    actions: Mapping[str, PageAction] = field(default_factory=dict)
    # How often the question is repeated while a browser follows it.
    refresh_s: float = REFRESH_S
    # False: the page works without --bootstrap.
    needs_cluster: bool = True
    # The option of `fencepost web` without which the page is not there.
    option: str = "--bootstrap HOST:PORT"


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
