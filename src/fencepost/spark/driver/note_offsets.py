"""The offsets under which commit notes are stored. Tools that compute lag must find a lag of 0.

A note is the metadata of an offset, and its text alone counts. The offset is the end that the partition will have when
the transaction is committed, so that end minus offset is 0. Earlier versions stored the number of the micro-batch
there, which looked like a growing lag. Their notes are in the same place, and are read in the same way.

The note of a token is written once, so it seems to lag by what is written to the partition later. Kafka has no place
where it would not: an offset beyond the end makes a negative lag, and a partition that does not exist is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from fencepost.client.client import KafkaClient
from fencepost.client.connection import BrokerConnection
from fencepost.client.failures import ClientError
from fencepost.protocol.messages import ListOffsetsRequest
from fencepost.protocol.topic_partition import TopicPartition

log = logging.getLogger("fencepost.spark")

READ_UNCOMMITTED, LATEST = 0, -1
NOTE_PARTITION = 0


def offset_of_note(end: int | None, has_records: bool) -> int:
    """end: of the partition now, None if it is not known. has_records: the transaction has written to the partition.

    The commit appends Kafka's marker to every partition that it has written to.
    """
    return 0 if end is None else end + has_records


def note_offsets(client: KafkaClient, topics: Iterable[str], written: Collection[TopicPartition]) -> dict[str, int]:
    """The offset for the note on each topic. Never raises: an offset that shows lag does no harm to the note."""
    topics = list(topics)
    try:
        ends = _ends(client, topics)
    except ClientError as e:
        log.info("the ends of %s are not known, so the commit note looks like lag until the next: %s", topics, e)
        ends = {}
    return {topic: offset_of_note(ends.get(topic), (topic, NOTE_PARTITION) in written) for topic in topics}


def _ends(client: KafkaClient, topics: Iterable[str]) -> Mapping[str, int]:
    """One request to each leader. The leader was known a moment ago, so nothing is asked twice."""
    by_leader: dict[BrokerConnection, list[str]] = {}
    for topic in topics:
        by_leader.setdefault(client.leader(topic, NOTE_PARTITION), []).append(topic)
    ends: dict[str, int] = {}
    for leader, led in by_leader.items():
        latest = ListOffsetsRequest.ListOffsetsPartition(NOTE_PARTITION, timestamp=LATEST)
        asked = [ListOffsetsRequest.ListOffsetsTopic(topic, [latest]) for topic in led]
        response = client.send(leader, ListOffsetsRequest(-1, READ_UNCOMMITTED, asked))
        for topic in response.topics:
            [found] = topic.partitions
            if not found.error_code:
                ends[topic.name] = int(found.offset)
    return ends
