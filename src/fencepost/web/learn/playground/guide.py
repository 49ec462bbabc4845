"""The first minute in the playground: a commit, and then a fenced producer. Each step is one click. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fencepost.protocol import errors
from fencepost.web.learn.playground.buttons import A, B, Click


@dataclass(frozen=True, slots=True)
class GuideStep:
    # What the user is asked for, and on the button.
    ask: str
    label: str
    click: Click
    # What has happened after it.
    happened: str
    # Of the answer; None: the click sends no request.
    error_code: int | None = errors.NONE


class Progress(NamedTuple):
    done: int = 0
    # Another click has changed what the next step does.
    is_astray: bool = False


GUIDE = (
    GuideStep(
        "Producers A and B are two processes of one service: they have the same transactional id. A registers first.",
        "Register A",
        Click("register", producer=A),
        "The coordinator gave A a producer id and an epoch: the next producer that registers the id gets a higher one.",
    ),
    GuideStep(
        "A begins a transaction.",
        "Begin",
        Click("begin", producer=A),
        "A has begun, and sent nothing: the coordinator learns of a transaction from its first record.",
        None,
    ),
    GuideStep(
        "A writes a record to the topic orders.",
        "Produce",
        Click("produce", producer=A),
        "The record is in the log, and open: a reader with read_committed waits in front of it.",
    ),
    GuideStep(
        "A commits.",
        "Commit",
        Click("commit", producer=A),
        "The coordinator wrote its decision, then a COMMIT marker behind the record: now every reader gets it.",
    ),
    GuideStep(
        "That was a transaction. Now break one: A begins again.",
        "Begin",
        Click("begin", producer=A),
        "A has begun its second transaction.",
        None,
    ),
    GuideStep(
        "A writes a second record, and then is slow: it does not commit yet.",
        "Produce",
        Click("produce", producer=A),
        "The second record is open, and readers with read_committed wait again.",
    ),
    GuideStep(
        "A supervisor believes that A is dead and starts B, which registers the same transactional id.",
        "Register B",
        Click("register", producer=B),
        "The coordinator aborted the transaction of A and gave B a higher epoch: the second record is aborted.",
    ),
    GuideStep(
        "A was only slow: it knows nothing of B, and commits.",
        "Commit as A",
        Click("commit", producer=A),
        "A is fenced (PRODUCER_FENCED): its epoch is old, so its commit has no effect and nothing is written twice.",
        errors.PRODUCER_FENCED,
    ),
)


def advance(progress: Progress, click: Click, error_code: int | None) -> Progress:
    """`error_code`: of the last answer to the click; None if it sent no request."""
    if click.button == "reset":
        return Progress()
    if progress.is_astray or progress.done == len(GUIDE):
        return progress
    step = GUIDE[progress.done]
    if (click, error_code) == (step.click, step.error_code):
        return Progress(progress.done + 1)
    return Progress(progress.done, is_astray=True)
