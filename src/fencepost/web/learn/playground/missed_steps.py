"""Errors whose cause is a step that was left out: the broker's answer alone would suggest another cause. Pure."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.protocol import errors

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
