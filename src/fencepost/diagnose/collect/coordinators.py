"""Checks that all coordinators were asked, by the leaders of `__transaction_state` before and after the questions.

A coordinator that is down is missing in the metadata, so that it is not asked, and each of the others lists only its
own ids. The transactions on a partition without a leader, or on one that moved meanwhile, are therefore unknown; they
must not be taken for ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from fencepost.client.admin.answers import DescribedTxn, NamedPartition
from fencepost.diagnose.snapshot import TXN_TOPIC
from fencepost.diagnose.words import listed
from fencepost.machines.txn.records import partition_for


def unasked_coordinators(before: Sequence[int], after: Sequence[int]) -> list[str]:
    """Which partitions of `__transaction_state` did not answer, given the leader of each; -1: it has no leader."""
    leaders = list(enumerate(zip_longest(before, after, fillvalue=-1)))
    unled = [NamedPartition(TXN_TOPIC, i) for i, (was, is_) in leaders if was < 0 or is_ < 0]
    moved = [NamedPartition(TXN_TOPIC, i) for i, (was, is_) in leaders if was >= 0 and is_ >= 0 and was != is_]
    problems = []
    if unled:
        problems.append(f"no broker leads {listed(unled)}, so the transactions there are not known")
    if moved:
        problems.append(f"{listed(moved)} moved to another broker meanwhile, so the transactions there are not known")
    return problems


def answered_by_another(txn: DescribedTxn, before: Sequence[int], after: Sequence[int]) -> str | None:
    """Why the answer of a broker about an id cannot be trusted; None if it was the coordinator all the time.

    A broker that does not know yet that another broker replaced it still answers, with outdated information.
    """
    if not before or not after:
        return None  # The client is not allowed to see the leaders.
    where = NamedPartition(TXN_TOPIC, partition_for(txn.transactional_id, len(after)))
    seen = {leaders[where.partition] for leaders in (before, after) if where.partition < len(leaders)}
    if seen == {txn.coordinator}:
        return None
    return f"broker {txn.coordinator} answered for `{txn.transactional_id}`, but does not lead {where}"
