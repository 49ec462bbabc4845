"""The pages of errors: the table of those that a transactional client can receive, and each of them."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.diagnose.errors.entry import ErrorEntry
from fencepost.diagnose.errors.table import TABLE, OtherError, look_up
from fencepost.diagnose.errors.table import NotFound as NoSuchError
from fencepost.diagnose.words import plain
from fencepost.web.cluster import WatchedCluster
from fencepost.web.page import Document, Page, Params, SubjectNotFound

# The table does not change while a page is open.
SELDOM_S = 3600.0


def ask_all(cluster: WatchedCluster, params: Params, query: Mapping[str, str]) -> Document:
    """Every error, or those whose name, number or meaning has the text of the search in it."""
    wanted = query.get("search", "").strip().lower()
    rows = [entry for entry in TABLE.values() if wanted in f"{entry.code} {entry.name} {entry.meaning}".lower()]
    return {"count": len(TABLE), "errors": [_row(entry) for entry in rows]}


def _row(entry: ErrorEntry) -> Document:
    return {"code": entry.code, "name": entry.name, "meaning": entry.meaning, "retriable": entry.retriable}


def ask_one(cluster: WatchedCluster, params: Params, query: Mapping[str, str]) -> Document:
    found = look_up(params["error"])
    if isinstance(found, NoSuchError):
        likely = f"; did you mean {', '.join(found.similar)}?" if found.similar else ""
        raise SubjectNotFound(f"Kafka has no error {found.asked}{likely}")
    return error_document(found)


def error_document(entry: ErrorEntry | OtherError) -> Document:
    if isinstance(entry, OtherError):
        return {"error": plain(entry), "is_transactional": False}
    texts = {"who": entry.who.value, "effect": entry.effect.value, "then": entry.then.value}
    return {"error": plain(entry) | {f"{name}_text": text for name, text in texts.items()}, "is_transactional": True}


TABLE_PAGE = Page(
    path="/errors",
    script="errors.js",
    title="Errors",
    ask=ask_all,
    nav="Errors",
    refresh_s=SELDOM_S,
    needs_cluster=False,
)
PAGE = Page(
    path="/error/{error:text}",
    script="error.js",
    title="Error {error}",
    ask=ask_one,
    refresh_s=SELDOM_S,
    needs_cluster=False,
)
