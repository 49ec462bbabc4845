"""The cluster's own facts as one document: its id, features, topics, ACLs, users, and how far producer ids are claimed.

`Metadata` is immutable. A request that changes it makes a `MetadataDraft`, checks and changes the draft, and hands it
to `Cluster.commit`, which saves the new document and only then applies it. If saving fails, the cluster is as it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fencepost import __version__
from fencepost.broker.users import Users, decode_users, encode_users
from fencepost.machines.acl.acls import Acl, Operation, PatternType, PermissionType, ResourceType
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.protocol.transaction_version import TransactionVersion

# Rises when older versions of Fencepost must not open the folder: docs/guides/upgrade.md.
DOCUMENT_VERSION = 1


class DocumentTooNew(Exception):
    """A later version of Fencepost wrote the document."""


class DocumentDamaged(Exception):
    """The document has not the form that Fencepost writes."""


class TopicMetadata(NamedTuple):
    name: str
    topic_id: bytes
    partition_count: int
    configs: Mapping[str, str]
    replication_factor: int = 1  # As clients see it: there is one copy of the bytes.


class Metadata(NamedTuple):
    cluster_id: str
    transaction_version: TransactionVersion
    group_version: int = 1
    features_epoch: int = 0
    leader_epoch: int = 0  # Of every partition.
    next_producer_id: int = 0  # All below are claimed.
    first_producer_id_after_loss: int = 0  # All below were given out before appends were lost, as in a power loss.
    topics: Mapping[str, TopicMetadata] = {}
    acls: frozenset[Acl] = frozenset()
    users: Users = {}  # noqa: RUF012 - it is a Mapping
    login_secret: bytes = b""  # What logins of unknown users see is computed from it.


class MetadataDraft:
    """The document as it will be, and the names of the topics that change."""

    def __init__(self, before: Metadata) -> None:
        self._before = before
        self.topics = dict(before.topics)
        self.changed: set[str] = set()
        self.leaders: dict[TopicPartition, int] = {}  # Of new partitions, where the request names them.
        self.partition_count = sum(topic.partition_count for topic in before.topics.values())

    def put(self, topic: TopicMetadata) -> None:
        """Create a topic, let it grow, or change its settings."""
        known = self.topics.get(topic.name)
        self.partition_count += topic.partition_count - (0 if known is None else known.partition_count)
        self.topics[topic.name] = topic
        self.changed.add(topic.name)

    def delete(self, name: str) -> None:
        self.partition_count -= self.topics.pop(name).partition_count
        self.changed.add(name)

    def document(self) -> Metadata:
        return self._before._replace(topics=self.topics)


def encode_metadata(metadata: Metadata) -> bytes:
    document = {
        "version": DOCUMENT_VERSION,
        "written_by": __version__,
        "cluster_id": metadata.cluster_id,
        "transaction_version": metadata.transaction_version,
        "group_version": metadata.group_version,
        "features_epoch": metadata.features_epoch,
        "leader_epoch": metadata.leader_epoch,
        "next_producer_id": metadata.next_producer_id,
        "first_producer_id_after_loss": metadata.first_producer_id_after_loss,
        "topics": {
            topic.name: {
                "id": topic.topic_id.hex(),
                "partitions": topic.partition_count,
                "configs": topic.configs,
                "replication_factor": topic.replication_factor,
            }
            for topic in metadata.topics.values()
        },
        "acls": [_encode_acl(acl) for acl in sorted(metadata.acls)],
        "users": encode_users(metadata.users),
        "login_secret": metadata.login_secret.hex(),
    }
    return json.dumps(document, indent=1).encode()


def decode_metadata(raw: bytes) -> Metadata:
    """Raises DocumentDamaged or DocumentTooNew. Older documents lack some fields, which have a default."""
    try:
        return _decode(json.loads(raw))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DocumentDamaged(f"{type(error).__name__}: {error}") from error


def _decode(document: dict[str, Any]) -> Metadata:
    version = document.get("version", DOCUMENT_VERSION)
    if version > DOCUMENT_VERSION:
        raise DocumentTooNew(
            f"the data folder has format {version} and was last used by Fencepost "
            f"{document.get('written_by', '(unknown)')}; this is Fencepost {__version__}, which knows formats up to "
            f"{DOCUMENT_VERSION}\n\n"
            "hint: start the later version, or restore a copy of the folder from before the upgrade"
        )
    return Metadata(
        document["cluster_id"],
        TransactionVersion(document["transaction_version"]),
        document.get("group_version", 1),
        document.get("features_epoch", 0),
        document.get("leader_epoch", 0),
        document["next_producer_id"],
        document.get("first_producer_id_after_loss", 0),
        {
            name: TopicMetadata(
                name,
                bytes.fromhex(entry["id"]),
                entry["partitions"],
                entry["configs"],
                entry.get("replication_factor", 1),
            )
            for name, entry in document["topics"].items()
        },
        frozenset(_decode_acl(entry) for entry in document.get("acls", ())),
        decode_users(document.get("users", {})),
        bytes.fromhex(document.get("login_secret", "")),
    )


def _encode_acl(acl: Acl) -> dict[str, str]:
    """In the words of `kafka-acls`, so that an operator can read the document."""
    return {
        "resource_type": acl.resource_type.name,
        "name": acl.name,
        "pattern_type": acl.pattern_type.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }


def _decode_acl(entry: Mapping[str, str]) -> Acl:
    return Acl(
        ResourceType[entry["resource_type"]],
        entry["name"],
        PatternType[entry["pattern_type"]],
        entry["principal"],
        entry["host"],
        Operation[entry["operation"]],
        PermissionType[entry["permission"]],
    )


def logs_in(document: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and topic id of every log that an encoded document has."""
    for topic in decode_metadata(document).topics.values():
        for index in range(topic.partition_count):
            yield f"{topic.name}-{index}", topic.topic_id
