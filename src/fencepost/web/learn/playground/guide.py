"""The first minute in the playground: a commit, then a fenced producer. And the step that an error shows as missed."""

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


# The answers to a request with producer id -1. They also mean that another producer took the id over.
WITHOUT_A_PRODUCER_ID = frozenset(
    {errors.PRODUCER_FENCED, errors.INVALID_PRODUCER_EPOCH, errors.INVALID_PRODUCER_ID_MAPPING}
)


class MissedStep(NamedTuple):
    """What to say instead of the general meaning of the error."""

    meaning: str
    what_to_do: str


class ProducerSteps(NamedTuple):
    """What a producer had done before a click."""

    name: str
    is_registered: bool
    has_begun: bool
    # Whether the transaction has or may have a record or an offset. The coordinator knows it from then on.
    may_have_written: bool


def missed_step(before: ProducerSteps, error_code: int) -> MissedStep | None:
    """The step that was left out, if it explains the error."""
    name = before.name
    if not before.is_registered and error_code in WITHOUT_A_PRODUCER_ID:
        return MissedStep(
            f"producer {name} has not registered yet, so it has no producer id and sent -1; no other producer fenced "
            "it",
            "click Register, then Begin, Produce and Commit. A real client sends nothing before `initTransactions()`",
        )
    if error_code != errors.INVALID_TXN_STATE or before.may_have_written:
        return None
    if not before.has_begun:
        return MissedStep(
            f"producer {name} has no transaction to end: it has not begun one since it registered or since the last "
            "one ended",
            "click Begin, then Produce, then Commit. A real client refuses this and sends nothing",
        )
    return MissedStep(
        f"the transaction of producer {name} is empty. The coordinator learns of a transaction from its first record "
        "or offset, so it has none to end",
        "click Produce or Add offsets first. A real client ends an empty transaction without a request",
    )
