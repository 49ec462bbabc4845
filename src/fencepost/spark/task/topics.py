"""Output topics as a transaction uses them: pinned to their id and size for as long as the transaction lasts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from fencepost.client.client import KafkaClient, TopicInfo, retry
from fencepost.client.failures import BrokerError, Unreachable
from fencepost.protocol import errors
from fencepost.spark.task.first_contact import check_first_contact

METADATA_DEADLINE_S = 60.0
NEW_TOPIC_S = 3.0
PAUSE_S = 0.02
T = TypeVar("T")


class PinnedTopic(NamedTuple):
    """A topic as it was when the transaction began. A topic created later under the same name has another id."""

    topic_id: bytes
    partition_count: int


def pin(client: KafkaClient, topic: str, patience_s: float = METADATA_DEADLINE_S) -> PinnedTopic:
    """The topic as it is now. Waits for a topic that was created a moment ago and is not known to every broker yet.

    patience_s: how long to wait if no broker can be reached.
    """
    began = time.monotonic()
    deadline = began + NEW_TOPIC_S

    def ask() -> TopicInfo:
        try:
            # Fresh: a client lives longer than some topics, so its cache may hold a deleted one.
            return client.topic(topic, fresh=True)
        except Unreachable as e:
            check_first_contact(client, e, began)
            raise

    while True:
        try:
            info = patiently(ask, patience_s)
            return PinnedTopic(info.topic_id, len(info.leaders))
        except BrokerError as e:
            if e.code != errors.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            if time.monotonic() > deadline:
                raise BrokerError(e.code, e.about, "it does not exist\n\nhint: create it: the sink does not") from None
            time.sleep(PAUSE_S)


def patiently(ask: Callable[[], T], deadline_s: float = METADATA_DEADLINE_S) -> T:
    """Ask again while no broker can be reached. A refusal, such as an unknown topic, is raised at once."""

    def attempt() -> tuple[list[T], BrokerError | None]:
        try:
            return [ask()], None
        except BrokerError as e:
            return [], e

    found, refusal = retry(attempt, deadline_s)
    if refusal is not None:
        raise refusal
    return found[0]
