"""How a request or a timer changes the groups of a shard: as a decision that yields records.

A decision is a generator. It reads the state and yields records. Its caller appends them as one batch, applies them to
the shard if that worked, and sends the error code back. The decision reacts and returns its answer:

    error = yield [GroupChange(group_id, record)]
    if error:
        return [refuse(token, error)]       # The records were not applied: there is nothing to undo.
    return [accept(token)]

Only `GroupShard.apply` changes the recorded state. A decision itself may change only state that is lost with the
process anyway: held requests, sessions, and the progress of a rebalance. Nothing else happens to the shard until the
decision has returned.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from fencepost.machines.group.classic.requests import GroupChange
from fencepost.machines.group.consumer.group import ConsumerRecord
from fencepost.machines.group.offsets import OffsetRecord

LogRecord = OffsetRecord | GroupChange | ConsumerRecord
Answer = TypeVar("Answer")
Decision = Generator[Sequence[LogRecord], int, Answer]


def run(decision: Decision[Answer], write: Callable[[Sequence[LogRecord]], int]) -> Answer:
    """Run a decision to its end. `write` appends and applies records, all or none, and returns an error code."""
    try:
        records = next(decision)
        while True:
            records = decision.send(write(records))
    except StopIteration as end:
        answer: Answer = end.value
        return answer
