"""The user's consumer group, which shows how far the pipeline has read its Kafka sources.

Sources and outputs in one cluster: the offsets are part of the transaction, so they move if and only if the outputs
become visible.
Sources in another cluster: no transaction covers both, so the sink commits the offsets after the transaction. If that
fails, the group shows too much lag until the next micro-batch. The commit note alone decides whether a micro-batch was
written.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping

from fencepost.client.admin.groups import count_members
from fencepost.client.admin.offsets import commit_offsets, committed_offsets
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.client.settings import parse_address
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.checkpoint.offsets import nested
from fencepost.spark.failures import SinkError
from fencepost.spark.settings import SOURCE_PREFIX

log = logging.getLogger("fencepost.spark")

# Spark's Kafka source takes these in the place of an offset.
EARLIEST, LATEST = -2, -1
OTHERWISE = {"earliest": EARLIEST, "latest": LATEST}
# Short: the micro-batch is committed, and the next one commits later offsets.
AFTERWARDS_DEADLINE_S = 10.0


class LagGroup:
    """client, settings: for the cluster of the sources; is_elsewhere: the outputs are in another cluster."""

    def __init__(
        self, group_id: str, client: KafkaClient, settings: Mapping[str, object], *, is_elsewhere: bool
    ) -> None:
        self.group_id = group_id
        self.is_elsewhere = is_elsewhere
        self._client = client
        self._settings = settings
        self._checked: set[str] = set()

    def check_sources(self, kafka_servers: Iterable[str]) -> None:
        """Raises SinkError if a source is in another cluster than the group, where a topic may have the same name."""
        for servers in set(kafka_servers) - self._checked:
            ids = self._cluster_ids(servers)
            if ids is None:
                continue  # No answer now; the next micro-batch asks again.
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
        """The ids of the group's cluster and of the cluster at these addresses; None if a cluster does not answer."""
        try:
            brokers = {*self._client.brokers().values(), *self._client.settings.bootstrap}
            if brokers & {parse_address(address) for address in servers.split(",")}:
                return "", ""
            with KafkaClient({**self._settings, "bootstrap.servers": servers}) as other:
                other.refresh()
                return self._client.cluster_id, other.cluster_id
        except ClientError as e:
            log.warning("it is not known whether %s is the cluster of group %s: %s", servers, self.group_id, e)
            return None

    def check(self) -> None:
        """Raises SinkError if the group has members: a transaction would move their position."""
        if self.is_elsewhere:
            return  # Outside a transaction the broker itself refuses the commit.
        members = count_members(self._client, self.group_id)
        if members:
            raise SinkError(
                f"group.id {self.group_id} has {members} members: committing for them would move their position"
                "\n\nhint: give the pipeline a group of its own"
            )

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's offsets, as far as it has any."""
        found = committed_offsets(self._client, self.group_id, partitions)
        return {place: offset for place, (offset, _) in found.items()}

    def commit_afterwards(self, consumed: Mapping[TopicPartition, int], batch_id: int) -> None:
        """For sources in another cluster. Never raises, because the micro-batch is committed."""
        if not consumed:
            return
        try:
            commit_offsets(self._client, self.group_id, consumed, deadline_s=AFTERWARDS_DEADLINE_S)
        except ClientError as e:
            log.warning(
                "micro-batch %d is committed, but its source offsets could not be committed to group %s in the "
                "sources' cluster, which shows too much lag until the next micro-batch: %s",
                batch_id,
                self.group_id,
                e,
            )
        else:
            log.info(
                "micro-batch %d: source offsets committed to group %s after the transaction", batch_id, self.group_id
            )

    def starting_offsets(
        self,
        topics: Iterable[str],
        otherwise: str | None,
        *,
        ended: Mapping[TopicPartition, int] | None = None,
        had_a_predecessor: bool,
        is_final: bool = True,
    ) -> str:
        """The group's offsets in every partition of the topics, as `startingOffsets` for Spark's Kafka source.

        ended: where the query to adopt ended, by its commit note. None: only the group tells.
        is_final: no other driver can move the group any more.
        """
        if otherwise is not None and otherwise not in OTHERWISE:
            raise ValueError(f"otherwise={otherwise!r} is none of {', '.join(OTHERWISE)}")
        partitions = [(t, p) for t in topics for p in range(len(self._client.topic(t, fresh=True).leaders))]
        found = {} if ended else committed_offsets(self._client, self.group_id, partitions, require_stable=is_final)
        committed = ended or {place: offset for place, (offset, _) in found.items()}
        if not committed and otherwise is None and had_a_predecessor:
            raise SinkError(
                f"group {self.group_id} has no offsets on {', '.join(topics)}, so it does not show where the pipeline "
                "stopped that this one is to adopt: brokers forget the offsets of an idle group after "
                "offsets.retention.minutes\n\nhint: look into the output topics; then say where to start, with "
                "starting_offsets(..., otherwise='earliest') or 'latest'"
            )
        if found and self.is_elsewhere:
            log.warning(
                "group %s is in another cluster than the outputs, so its offsets follow after the commit: it may be "
                "one micro-batch behind, and the rows of that micro-batch are then written again",
                self.group_id,
            )
        start = OTHERWISE[otherwise or "earliest"]
        return json.dumps(nested({place: committed.get(place, start) for place in partitions}))
