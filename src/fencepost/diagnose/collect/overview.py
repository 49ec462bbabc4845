"""Asks a cluster for the overview of the workbench, and counts how many transactions end."""

from __future__ import annotations

import time
from collections import deque

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.partitions import list_offsets
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.client.fetching import read_batches
from fencepost.diagnose.collect.look import now_ms
from fencepost.diagnose.collect.partitions import collect_lso
from fencepost.diagnose.collect.state_log import log_partitions
from fencepost.diagnose.collect.transactions import collect_open_txns
from fencepost.diagnose.overview import EndCount, OverviewSnapshot, Rates, count_ends
from fencepost.protocol.messages import DescribeRpcsRequest

# Two minutes of one sample a second.
SAMPLES = 120
# After a longer pause, counting starts anew: an average over minutes would look like a lull.
LONGEST_PAUSE_S = 10.0
# Of `__transaction_state`, in one look. A busier cluster is counted by samples.
MOST_RECORDS = 20_000


def collect_overview(client: KafkaClient) -> OverviewSnapshot:
    lso, txns = collect_lso(client), collect_open_txns(client)
    return OverviewSnapshot(
        cluster_id=client.cluster_id,
        broker_count=len(client.brokers()),
        is_fencepost=client.any_broker().session.max_version(DescribeRpcsRequest.definition.api_key) >= 0,
        lso=lso,
        txns=txns,
    )


class EndsWatch:
    """Reads what is new in `__transaction_state` at each look, and keeps the rates of the last minutes.

    Works on any Kafka: the coordinator of every broker writes a record when a transaction has ended.
    """

    def __init__(self) -> None:
        self._read_to: dict[NamedPartition, int] = {}
        self._looked_at = float("-inf")
        self._samples: deque[EndCount] = deque(maxlen=SAMPLES)

    def look(self, client: KafkaClient) -> Rates:
        """Count what has ended since the last look. Raises ClientError."""
        answers = list_offsets(client, log_partitions(client))
        if answers.problems and not answers.found:
            raise ClientError(answers.problems[0])
        ends = answers.found
        now = time.monotonic()
        took_s = now - self._looked_at
        if took_s > LONGEST_PAUSE_S:
            sample = EndCount(at_ms=now_ms(), seconds=None)
        else:
            # A partition that is new since the last look is read from its beginning.
            spans = {where: (self._read_to.get(where, 0), end) for where, end in ends.items()}
            sample = self._count(client, {where: span for where, span in spans.items() if span[0] < span[1]}, took_s)
        self._read_to.update(ends)
        self._looked_at = now
        self._samples.append(sample)
        return Rates(tuple(self._samples))

    def _count(self, client: KafkaClient, spans: dict[NamedPartition, tuple[int, int]], took_s: float) -> EndCount:
        new = sum(end - start for start, end in spans.values())
        share = min(MOST_RECORDS / new, 1.0) if new else 1.0
        commits = aborts = 0
        for where, (start, end) in spans.items():
            first = end - round((end - start) * share)
            for _, batch in read_batches(client, where, first, end):
                committed, aborted = count_ends(batch, first, end)
                commits, aborts = commits + committed, aborts + aborted
        return EndCount(now_ms(), took_s, round(commits / share), round(aborts / share), is_estimate=share < 1)
