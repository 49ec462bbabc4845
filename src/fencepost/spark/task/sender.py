"""Sends record batches to their leaders, each under its lease, until the brokers have acknowledged them.

Several partitions of one broker go into one request, up to a size that every broker accepts. A record batch that was
sent once is only ever sent again as the same bytes, so a broker recognizes it by its sequence.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from fencepost.client.client import KafkaClient
from fencepost.client.connection import BrokerConnection
from fencepost.client.failures import BrokerError, ClientError, Unreachable
from fencepost.protocol import errors
from fencepost.protocol.messages import ProduceRequest
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.encode.record_batches import EncodedRecordBatch, finish_record_batch, halve_record_batch
from fencepost.spark.lease.client import LeaseClient
from fencepost.spark.lease.messages import Lease
from fencepost.spark.task.first_contact import check_first_contact
from fencepost.spark.task.plan import WritePlan
from fencepost.spark.task.produce_answer import ProduceVerdict, judge
from fencepost.spark.task.topics import PinnedTopic

PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5
REQUEST_TIMEOUT_MS = 30_000
# Brokers close the connection on a request above socket.request.max.bytes, which is 100 MiB by default.
MAX_REQUEST_BYTES = 16 << 20


class WriteFailed(Exception):
    """The task cannot continue. It has reported the error to the driver, which decides about another attempt."""


class Leased(NamedTuple):
    """A record batch, and the lease under which it is sent."""

    record_batch: EncodedRecordBatch
    lease: Lease

    @property
    def where(self) -> TopicPartition:
        return self.lease.topic, self.lease.partition


class Sender:
    """`topics` has every topic that a record batch is for."""

    def __init__(
        self, plan: WritePlan, client: KafkaClient, leases: LeaseClient, topics: Mapping[str, PinnedTopic]
    ) -> None:
        self._plan = plan
        self._client = client
        self._leases = leases
        self._topics = topics

    def send(self, leased: list[Leased]) -> None:
        """Returns when every record batch is acknowledged. Raises WriteFailed or NeverReached."""
        identity = self._plan.identity
        left = {one.where: finish_record_batch(one.record_batch, identity, one.lease.base_sequence) for one in leased}
        never_in_doubt = set(left)  # Every attempt so far was refused for certain: nothing of them is in the log.
        began = time.monotonic()
        deadline = began + min(one.lease.within_ms for one in leased) / 1000
        pause_s = PAUSE_S
        while left:
            again = ""
            for where, (code, message) in self._produce(left, began).items():
                verdict = judge(code)
                if verdict is ProduceVerdict.WRITTEN:
                    del left[where]
                elif verdict is ProduceVerdict.AGAIN:
                    again = f"{where[0]}-{where[1]}: {message}"
                    never_in_doubt.discard(where)
                elif verdict is ProduceVerdict.TOO_LARGE and where in never_in_doubt:
                    self._send_halves(next(one for one in leased if one.where == where))
                    del left[where]
                else:
                    self._give_up(where, len(left[where]), code, message, verdict)
            if left:
                if time.monotonic() + pause_s > deadline:
                    reason = f"no acknowledgement in time; the last answer was: {again}"
                    self._leases.fail(reason, is_fatal=False)
                    raise WriteFailed(reason)
                time.sleep(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _send_halves(self, too_large: Leased) -> None:
        """The topic allows less than max.request.size: fill the lease's sequences with two smaller record batches."""
        record_batch, lease = too_large
        if record_batch.record_count == 1:
            size_bytes = record_batch.size_bytes
            message = f"one record has {size_bytes} bytes, more than max.message.bytes of topic {lease.topic} allows"
            self._give_up(too_large.where, size_bytes, errors.MESSAGE_TOO_LARGE, message, ProduceVerdict.FATAL)
        first, second = halve_record_batch(record_batch)
        self.send([Leased(first, lease._replace(record_count=first.record_count))])
        rest = lease._replace(
            base_sequence=(lease.base_sequence + first.record_count) & 0x7FFFFFFF, record_count=second.record_count
        )
        self.send([Leased(second, rest)])

    def _give_up(
        self, where: TopicPartition, size_bytes: int, code: int, message: str, verdict: ProduceVerdict
    ) -> None:
        id_, producer_id, epoch = self._plan.identity
        reason = (
            f"{where[0]}-{where[1]} refused {size_bytes} bytes of transaction `{id_}` "
            f"(producer {producer_id}, epoch {epoch}) with {errors.name_of(code)} ({code})"
            + (f": {message}" if message else "")
        )
        # A record batch that is too large, but may have been written, is not fatal: the next attempt learns the size
        # limit before anything is in doubt.
        self._leases.fail(reason, is_fatal=verdict is ProduceVerdict.FATAL)
        raise WriteFailed(reason)

    # --- requests to each leader ----------------------------------------------------------------------------

    def _produce(self, encoded: Mapping[TopicPartition, bytes], began: float) -> dict[TopicPartition, tuple[int, str]]:
        """The error code and message for each partition. A lost connection counts as NETWORK_EXCEPTION.

        began: when these record batches were sent first. Raises NeverReached.
        """
        answers: dict[TopicPartition, tuple[int, str]] = {}
        by_leader: dict[BrokerConnection, dict[str, list[int]]] = {}
        for topic, partition in encoded:
            try:
                leader = self._client.leader(topic, partition)
            except (BrokerError, Unreachable) as e:
                check_first_contact(self._client, e, began)
                answers[topic, partition] = self._lost(topic, e)
                continue
            by_leader.setdefault(leader, {}).setdefault(topic, []).append(partition)
        requests = [
            (leader, part)
            for leader, topics in by_leader.items()
            for part in split_by_size(topics, encoded, MAX_REQUEST_BYTES)
        ]
        for leader, topics in requests:
            try:
                response = self._client.send(leader, self._request(encoded, topics), self._plan.produce_version)
            except Unreachable as e:
                for topic, partitions in topics.items():
                    answers |= {(topic, partition): self._lost(topic, e) for partition in partitions}
                continue
            names = {self._topics[topic].topic_id: topic for topic in topics}
            for t in response.responses:
                name = t.name or names[t.topic_id]
                for p in t.partition_responses:
                    answers[name, p.index] = self._answer(name, p.error_code, p.error_message)
        return answers

    def _answer(self, topic: str, code: int, message: str | None) -> tuple[int, str]:
        if code == errors.UNKNOWN_TOPIC_ID:
            # Either the broker does not know a new topic yet, or the topic was deleted. If its id is still the same,
            # the topic exists, and the task sends the record batch again.
            self._refresh(topic)
            with suppress(ClientError):
                if self._client.topic(topic).topic_id == self._topics[topic].topic_id:
                    code = errors.UNKNOWN_TOPIC_OR_PARTITION
        elif code and judge(code) is ProduceVerdict.AGAIN:
            self._refresh(topic)
        return code, message or errors.name_of(code)

    def _request(self, encoded: Mapping[TopicPartition, bytes], topics: Mapping[str, list[int]]) -> ProduceRequest:
        data, entry = ProduceRequest.TopicProduceData, ProduceRequest.PartitionProduceData
        return ProduceRequest(
            self._plan.identity.transactional_id,
            -1,
            REQUEST_TIMEOUT_MS,
            [
                data(t, self._topics[t].topic_id, [entry(p, encoded[t, p]) for p in partitions])
                for t, partitions in topics.items()
            ],
        )

    def _lost(self, topic: str, problem: ClientError) -> tuple[int, str]:
        self._refresh(topic)
        code = problem.code if isinstance(problem, BrokerError) else errors.NETWORK_EXCEPTION
        return code, str(problem)

    def _refresh(self, topic: str) -> None:
        with suppress(ClientError):  # The next request reports the problem.
            self._client.refresh([topic])


def split_by_size(
    topics: Mapping[str, list[int]], encoded: Mapping[TopicPartition, bytes], limit: int
) -> list[dict[str, list[int]]]:
    """The partitions of one broker in requests of at most `limit` bytes. A record batch above it goes alone."""
    requests: list[dict[str, list[int]]] = []
    size = 0
    for topic, partitions in topics.items():
        for partition in partitions:
            size += len(encoded[topic, partition])
            if not requests or size > limit:
                requests.append({})
                size = len(encoded[topic, partition])
            requests[-1].setdefault(topic, []).append(partition)
    return requests
