"""The commands that set the scene: topics, time, restarts, features, and what an earlier process left."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.machines.txn.states import BY_KAFKA_NAME, NO_ID, Txn
from fencepost.protocol import errors
from fencepost.protocol.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ListOffsetsRequest,
    MetadataRequest,
    UpdateFeaturesRequest,
)
from fencepost.protocol.transaction_version import TV2, TransactionVersion
from tests.transcripts.client import Client, Command
from tests.transcripts.parsing import options


def create_topic(client: Client, name: str, partitions: str = "1") -> Iterator[str]:
    topic = CreateTopicsRequest.CreatableTopic(client.names.full(name), int(partitions), 1)
    reply = client.call(CreateTopicsRequest([topic], 10_000), 5)
    yield errors.name_of(reply.topics[0].error_code)
    latest = [ListOffsetsRequest.ListOffsetsPartition(index, -1, -1) for index in range(int(partitions))]
    wanted = [ListOffsetsRequest.ListOffsetsTopic(client.names.full(name), latest)]

    def is_led() -> bool:
        # Not Metadata, which can name a leader before that broker is ready to lead.
        found = client.call(ListOffsetsRequest(-1, 0, wanted), 5).topics[0]
        return all(p.error_code == 0 for p in found.partitions)

    client.wait_until(is_led)


def delete_topic(client: Client, name: str) -> Iterator[str]:
    reply = client.call(DeleteTopicsRequest([], [client.names.full(name)], 10_000), 5)
    yield errors.name_of(reply.responses[0].error_code)
    wanted = [MetadataRequest.MetadataRequestTopic(name=client.names.full(name))]

    def is_gone() -> bool:
        found = client.call(MetadataRequest(wanted, allow_auto_topic_creation=False), 4).topics[0]
        return bool(found.error_code == errors.UNKNOWN_TOPIC_OR_PARTITION)

    client.wait_until(is_gone)


def wait(client: Client, ms: str) -> Iterator[str]:
    client.target.advance(int(ms))
    yield "NONE"


def let_markers_be_written(client: Client, transactional_id: str) -> Iterator[str]:
    """Give the coordinator time to write markers."""
    client.target.advance(0)
    yield "NONE"


def restart(client: Client) -> Iterator[str]:
    client.target.restart()
    yield "NONE"


def change_feature(client: Client, level: str) -> Iterator[str]:
    """Change `transaction.version`, and wait until ApiVersions shows it to clients."""
    kind = UpdateFeaturesRequest.FeatureUpdateKey
    for how in (1, 2):  # An upgrade; if it is refused, a downgrade.
        update = kind("transaction.version", int(level), upgrade_type=how)
        reply = client.call(UpdateFeaturesRequest(10_000, [update], False), 1)
        if reply.error_code == 0:
            break
    yield errors.name_of(reply.error_code)

    def is_shown() -> bool:
        found = client.call(ApiVersionsRequest("transcript", "1"), 4).finalized_features
        return bool({f.name: f.max_version_level for f in found}.get("transaction.version", 0) == int(level))

    client.wait_until(is_shown)


def preset(client: Client, transactional_id: str, producer: str, state: str, *rest: str) -> Iterator[str]:
    """A transactional id as an earlier process might have left it.

    `started=MS` and `updated=MS` say how long ago. So a transcript need not be fast to see a time run out.
    """
    partitions, given = options(rest)
    producer_id, epoch = client.names.producer(producer)
    now_ms = client.target.now_ms
    client.target.write_state(
        Txn(
            client.names.full(transactional_id),
            producer_id,
            epoch,
            int(given.get("timeout", 60_000)),
            BY_KAFKA_NAME[state],
            frozenset(map(client.names.partition, partitions)),
            -1 if state == "Empty" else now_ms - int(given.get("started", 0)),
            now_ms - int(given.get("updated", 0)),
            int(given.get("previous", NO_ID)),
            int(given.get("next", NO_ID)),
            TransactionVersion(int(given.get("tv", TV2))),
        )
    )
    yield "NONE"


COMMANDS: dict[str, Command] = {
    "topic": create_topic,
    "delete-topic": delete_topic,
    "wait": wait,
    "markers": let_markers_be_written,
    "restart": restart,
    "feature": change_feature,
    "preset": preset,
}
