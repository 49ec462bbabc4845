"""Whether everybody who could know of a transaction was asked: the leaders of `__transaction_state`, before and after.

A coordinator that is down is not in the metadata, so nobody asks it, and the others list only ids of their own. What
a partition without a leader keeps, or one that moved meanwhile, is therefore unknown; it is not gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from fencepost.client.admin.answers import DescribedTxn, NamedPartition
from fencepost.diagnose.snapshot import TXN_TOPIC
from fencepost.diagnose.words import listed
from fencepost.machines.txn.records import partition_for


def unasked_coordinators(before: Sequence[int], after: Sequence[int]) -> list[str]:
    """Why some of `__transaction_state` may not have been heard, given who led each partition of it; -1: nobody."""
    leaders = list(enumerate(zip_longest(before, after, fillvalue=-1)))
    unled = [NamedPartition(TXN_TOPIC, i) for i, (was, is_) in leaders if was < 0 or is_ < 0]
    moved = [NamedPartition(TXN_TOPIC, i) for i, (was, is_) in leaders if was >= 0 and is_ >= 0 and was != is_]
    problems = []
    if unled:
        problems.append(f"nobody leads {listed(unled)}, so the transactions that are kept there are not known")
    if moved:
        problems.append(
            f"{listed(moved)} moved to another broker meanwhile, so the transactions that are kept there are not known"
        )
    return problems


def answered_by_another(txn: DescribedTxn, before: Sequence[int], after: Sequence[int]) -> str | None:
    """Why what a broker says of an id is not to be trusted; None if it was its coordinator all the time.

    A broker that has not heard of its successor answers, too, with what was true some time ago.
    """
    if not before or not after:
        return None  # Who leads is not told to everybody.
    where = NamedPartition(TXN_TOPIC, partition_for(txn.transactional_id, len(after)))
    seen = {leaders[where.partition] for leaders in (before, after) if where.partition < len(leaders)}
    if seen == {txn.coordinator}:
        return None
    return f"broker {txn.coordinator} answered for `{txn.transactional_id}`, but does not lead {where}"
