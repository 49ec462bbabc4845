"""Shared by the commands of `fencepost txn`: shows a document, and reports its gaps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from fencepost.cli.options import ClusterOptions, Unanswered
from fencepost.cli.streams import Failure
from fencepost.printable import printable

if TYPE_CHECKING:
    from fencepost.cli.output import Block
    from fencepost.diagnose.snapshot import OpenTxn

D = TypeVar("D")


def show(
    look: Callable[[], D],
    blocks: Callable[[D], Iterable[Block]],
    as_json: bool,
    every_ms: int | None,
    is_enough: Callable[[D], bool] = lambda document: False,
) -> D | None:
    """Write a document once and return it.

    With `every_ms`, write it again and again, until one is enough, which is returned, or until Ctrl-C: None.
    """
    from fencepost.cli.output import watch, write

    if every_ms is not None:
        return watch(look, blocks, as_json, every_ms, is_enough)
    document = look()
    write(document, blocks, as_json)
    return document


def write(document: D, blocks: Callable[[D], Iterable[Block]], as_json: bool) -> None:
    from fencepost.cli.output import write

    write(document, blocks, as_json)


def require_answers(problems: Sequence[str]) -> None:
    """An incomplete answer must not be taken for an all-clear."""
    if problems:
        raise Unanswered(what_is_missing(problems), "the warnings above say which")


def what_is_missing(problems: Sequence[str]) -> str:
    """Why an answer is not complete."""
    return "this user may not ask all questions" if is_denied(problems) else "not all brokers answered"


def is_denied(problems: Sequence[str]) -> bool:
    """Whether permissions are all that is missing. The text of an error of a broker has the name of its code."""
    return bool(problems) and all("_AUTHORIZATION_FAILED" in problem for problem in problems)


def maybe_hanging(cluster: ClusterOptions, nameless: Iterable[OpenTxn]) -> tuple[str, str]:
    """The problem and the hint about transactions that hang under no transactional id that is known."""
    from fencepost.diagnose.orders import what_may_hang

    return what_may_hang(nameless), f"`{cluster.command('txn', 'hanging')}` shows them, and how to end them"


def unknown_id(cluster: ClusterOptions, transactional_id: str, similar: Iterable[str] = ()) -> Failure:
    near = next(iter(similar), None)
    hint = f"did you mean {near}?" if near is not None else where_all_ids_are(cluster)
    return Failure(printable(f"no coordinator knows `{transactional_id}`"), printable(hint))


def where_all_ids_are(cluster: ClusterOptions) -> str:
    return f"`{cluster.command('txn', 'list')}` lists all ids"
