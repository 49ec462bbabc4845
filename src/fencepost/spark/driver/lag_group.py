"""The user's consumer group: shows how far the pipeline has read its Kafka sources.

Where sources and outputs are in one cluster, its offsets are in the batch's transaction: they move if and only if the
outputs show. Where they are not, no transaction reaches both: the offsets follow after the commit, as well as they can.
They are then for people and their tools to look at; whether a batch was written is decided by the marker alone.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping

from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.client.settings import parse_address
from fencepost.spark.failures import SinkError
from fencepost.spark.settings import SOURCE_PREFIX

log = logging.getLogger("fencepost.spark")

# What Spark's Kafka source understands in the place of an offset.
EARLIEST, LATEST = -2, -1
OTHERWISE = {"earliest": EARLIEST, "latest": LATEST}
# The batch is committed; the next one will say it again.
AFTERWARDS_DEADLINE_S = 10.0


class LagGroup:
    """client, settings: of the cluster that the sources are in; is_elsewhere: the outputs are in another."""

    def __init__(
        self, group_id: str, client: KafkaClient, settings: Mapping[str, object], *, is_elsewhere: bool
    ) -> None:
        self.group_id = group_id
        self.is_elsewhere = is_elsewhere
        self._client = client
        self._settings = settings
        self._checked: set[str] = set()

    def check_sources(self, kafka_servers: Iterable[str]) -> None:
        """Raises SinkError if a source is in another cluster: a topic there may have a namesake here."""
        for servers in set(kafka_servers) - self._checked:
            ids = self._cluster_ids(servers)
            if ids is None:
                continue  # It cannot be told now; the next batch asks again.
            ours, theirs = ids
            if ours != theirs:
                where = f"{SOURCE_PREFIX}bootstrap.servers" if self.is_elsewhere else "bootstrap.servers"
                raise SinkError(
                    f"the query reads from {servers}, which is cluster {theirs}, but group.id {self.group_id} would be "
                    f"committed to cluster {ours} ({where}={self._settings['bootstrap.servers']})"
                    f"\n\nhint: set {SOURCE_PREFIX}bootstrap.servers (and {SOURCE_PREFIX}security.protocol and so on) "
                    "for the cluster that the query reads from, or leave out group.id"
                )
            self._checked.add(servers)

    def _cluster_ids(self, servers: str) -> tuple[str, str] | None:
        """Of the group's cluster and of the one behind these addresses; None where it cannot be told."""
        try:
            brokers = {*self._client.brokers().values(), *self._client.settings.bootstrap}
            if brokers & {parse_address(address) for address in servers.split(",")}:
                return "", ""
            with KafkaClient({**self._settings, "bootstrap.servers": servers}) as other:
                other.refresh()
                return self._client.cluster_id, other.cluster_id
        except ClientError as e:
            log.warning("whether %s is the cluster of group %s cannot be told: %s", servers, self.group_id, e)
            return None

    def check(self) -> None:
        """Raises SinkError if somebody else uses the group. A transaction would move their position unasked."""
        if self.is_elsewhere:
            return  # Without a transaction the broker itself refuses.
        members = self._client.group_members(self.group_id)
        if members:
            raise SinkError(
                f"group.id {self.group_id} has {members} members: committing for them would move their position"
                "\n\nhint: give the pipeline a group of its own"
            )

    def commit_afterwards(self, consumed: Mapping[tuple[str, int], int], batch_id: int) -> None:
        """Where the transaction does not reach: never raises, since the batch is committed."""
        if not consumed:
            return
        try:
            self._client.commit(self.group_id, consumed, deadline_s=AFTERWARDS_DEADLINE_S)
        except ClientError as e:
            log.warning(
                "batch %d is committed, but its source offsets could not be committed to group %s in the sources' "
                "cluster, which shows too much lag until the next batch: %s",
                batch_id,
                self.group_id,
                e,
            )
        else:
            log.info("batch %d: source offsets committed to group %s after the transaction", batch_id, self.group_id)

    def starting_offsets(self, topics: Iterable[str], otherwise: str | None, *, had_a_predecessor: bool) -> str:
        """For `startingOffsets` of Spark's Kafka source: every partition of the topics, from where the group is."""
        if otherwise is not None and otherwise not in OTHERWISE:
            raise ValueError(f"otherwise={otherwise!r} is none of {', '.join(OTHERWISE)}")
        partitions = [(t, p) for t in topics for p in range(len(self._client.topic(t, fresh=True).leaders))]
        committed = self._client.committed(self.group_id, partitions)
        if not committed and otherwise is None and had_a_predecessor:
            raise SinkError(
                f"group {self.group_id} has no offsets on {', '.join(topics)}, so it does not tell where the pipeline "
                "stopped that this one is to go on with (adopt=True): brokers forget those of an idle group after "
                "offsets.retention.minutes\n\nhint: look into the output topics; then say where to start, with "
                "starting_offsets(..., otherwise='earliest') or 'latest'"
            )
        if committed and self.is_elsewhere:
            log.warning(
                "group %s is in another cluster than the outputs, so it follows after the commit: it may be a batch "
                "behind, and the rows of that batch are then written again",
                self.group_id,
            )
        start = OTHERWISE[otherwise or "earliest"]
        offsets: dict[str, dict[str, int]] = {}
        for topic, partition in partitions:
            offset, _ = committed.get((topic, partition), (start, ""))
            offsets.setdefault(topic, {})[str(partition)] = offset
        return json.dumps(offsets)
