"""What a page of the workbench is: an address, a question to the cluster, a script for the browser, and actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
