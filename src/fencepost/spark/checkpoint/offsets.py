"""The checkpoint's record of a micro-batch: its query, its source offsets, and when it was planned.

`<checkpoint>/offsets/N` has a version, a line of metadata, and a line for each source. Version 1 lists the sources by
position; version 2 (Spark 4.1) puts a name and a colon in front of each. `-` stands for a source without data so far.
Spark writes the file once, before the micro-batch first runs, so every rerun finds the same file.

`<checkpoint>/sources/NAME/0` of a Kafka source has the offsets at which micro-batch 0 starts: a zero byte, a version,
and a line in the form of a line of `offsets/N`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.protocol.topic_partition import TopicPartition
from fencepost.spark.checkpoint.files import CheckpointFiles
from fencepost.spark.failures import SinkError

NO_OFFSET = "-"
DIGEST_CHARS = 32


class BadCheckpoint(SinkError):
    """A file of the checkpoint is missing, or does not have the form that Spark writes."""


@dataclass(frozen=True, slots=True)
class SourceEnd:
    """Where a micro-batch ends in one source."""

    name: str  # In version 1 the position: "0", "1", ...
    text: str | None  # As the source wrote it. None: no data so far.
    kafka_ends: Mapping[str, Mapping[int, int]] | None = None  # None: not a Kafka source.


@dataclass(frozen=True, slots=True)
class MicroBatchOffsets:
    sources: tuple[SourceEnd, ...]
    digest: str
    timestamp_ms: int | None

    @property
    def kafka_ends(self) -> list[Mapping[str, Mapping[int, int]]]:
        """For each Kafka source: topic -> partition -> the offset after the last record of the micro-batch."""
        return [s.kafka_ends for s in self.sources if s.kafka_ends is not None]

    @property
    def identify_rows(self) -> bool:
        """Do equal offsets mean equal rows? Those of Kafka do. Files, sockets and others are counted as they come."""
        return not self.others()

    def others(self, descriptions: Sequence[str] = ()) -> list[str]:
        """The sources that are not Kafka sources, in Spark's words if they are known."""
        named = descriptions if len(descriptions) == len(self.sources) else [f"source {s.name}" for s in self.sources]
        return [
            name for name, s in zip(named, self.sources, strict=True) if s.text is not None and s.kafka_ends is None
        ]

    @property
    def consumed(self) -> dict[TopicPartition, int]:
        """The offsets up to which all Kafka sources of the query have read: those a consumer group may commit."""
        return lowest(self.kafka_ends)

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Where a query that continues this one has to start. Empty if no such offsets would fit all sources."""
        return common(self.kafka_ends)

    @property
    def reads_twice(self) -> bool:
        """Do two Kafka sources read the same partition? Then `consumed` does not say where each of them is."""
        return sum(len(partitions) for ends in self.kafka_ends for partitions in ends.values()) > len(self.consumed)


def read_offsets(files: CheckpointFiles, batch_id: int, descriptions: Sequence[str] | None = None) -> MicroBatchOffsets:
    """The offsets of a micro-batch. `descriptions`: the sources of the running query as text, in order."""
    path = f"offsets/{batch_id}"
    text = files.read(path)
    if text is None:
        raise BadCheckpoint(f"the checkpoint has no {path}, which Spark writes before it runs a micro-batch")
    try:
        return parse_offsets(text, descriptions)
    except BadCheckpoint as e:
        raise BadCheckpoint(f"{path}: {e}") from e


@dataclass(frozen=True, slots=True)
class BatchStart:
    """Where a micro-batch starts in the sources of its query, as far as the checkpoint says."""

    offsets: Mapping[TopicPartition, int]  # In Kafka sources. Empty also if two of them start at different offsets.
    digests: Collection[str]  # A micro-batch that ends there has one of these: the file may have either version.


def read_start(files: CheckpointFiles, batch_id: int, offsets: MicroBatchOffsets) -> BatchStart:
    """offsets: those of a micro-batch of the query, which tell which of its sources are Kafka sources."""
    kafka = [source.name for source in offsets.sources if source.kafka_ends is not None]
    if batch_id > 0:
        try:
            before = read_offsets(files, batch_id - 1)
        except BadCheckpoint:
            return BatchStart({}, ())
        return BatchStart(
            common(s.kafka_ends for s in before.sources if s.kafka_ends and s.name in kafka), [before.digest]
        )
    lines = {name: _initial_line(files.read(f"sources/{name}/0") or "") for name in kafka}
    starts = [start for line in lines.values() if (start := parse_kafka_ends(line)) is not None]
    if len(starts) < len(offsets.sources):
        return BatchStart(common(starts), ())
    named = [f"{name}:{line}" for name, line in lines.items()]
    return BatchStart(common(starts), [digest_of(lines.values()), digest_of(named)])


def read_query_id(files: CheckpointFiles) -> str:
    """The id of the query, which stays the same as long as the checkpoint exists."""
    text = files.read("metadata")
    if text is None:
        raise BadCheckpoint("the checkpoint has no file `metadata`: it does not belong to a query yet")
    document = _json_object(text)
    if document is None or not isinstance(document.get("id"), str):
        raise BadCheckpoint(f"metadata: expected a document with an id, found {text[:100]!r}")
    return str(document["id"])


def has_state(files: CheckpointFiles) -> bool:
    """Does the query keep state? Then each micro-batch has to run, or the state store misses one."""
    return files.exists("state")


def parse_offsets(text: str, descriptions: Sequence[str] | None = None) -> MicroBatchOffsets:
    # Not splitlines(): it splits at more characters than Spark does, some of which occur inside JSON strings.
    version, newline, rest = text.partition("\n")
    if not newline:
        raise BadCheckpoint("the file is not complete")
    if version.strip() not in ("v1", "v2"):
        raise BadCheckpoint(f"version {version[:20]!r}; v1 and v2 are known")
    metadata, *lines = rest.split("\n")
    document = _json_object(metadata) or {}
    named = [_name_and_text(line) for line in lines] if version.strip() == "v2" else _numbered(lines)
    providers = document.get("sourceMetadataInfo")
    sources = []
    for position, (name, end) in enumerate(named):
        said = descriptions[position] if descriptions and len(descriptions) == len(named) else None
        may_be_kafka = _may_be_kafka(said) and _provider_may_be_kafka(providers, name)
        sources.append(
            SourceEnd(name, None, None)
            if end == NO_OFFSET
            else SourceEnd(name, end, parse_kafka_ends(end) if may_be_kafka else None)
        )
    timestamp_ms = document.get("batchTimestampMs")
    return MicroBatchOffsets(
        tuple(sources), digest_of(lines), timestamp_ms if type(timestamp_ms) is int and timestamp_ms > 0 else None
    )


def digest_of(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:DIGEST_CHARS]


def parse_kafka_ends(text: str) -> dict[str, dict[int, int]] | None:
    """`{"orders":{"0":123}}` as numbers; None if it is anything else.

    Among Spark's own sources only the Kafka source writes this form. Some third-party connectors write it too, so the
    description of the source decides, if there is one.
    """
    document = _json_object(text)
    if not document:
        return None
    ends: dict[str, dict[int, int]] = {}
    for topic, partitions in document.items():
        if not isinstance(partitions, dict) or not partitions:
            return None
        if not all(p.isascii() and p.isdigit() and type(offset) is int for p, offset in partitions.items()):
            return None
        ends[topic] = {int(p): offset for p, offset in partitions.items()}
    return ends


def _initial_line(text: str) -> str:
    """The offsets in the file in which Spark's Kafka source keeps where it first started; empty in any other file."""
    version, _, line = text.removeprefix("\0").partition("\n")
    return line if version == "v1" else ""


def nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """In the form of Spark's Kafka source, which is also that of its option `startingOffsets`."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def lowest(offsets: Iterable[Mapping[str, Mapping[int, int]]]) -> dict[TopicPartition, int]:
    """Two sources may read one topic and be at different offsets. The lower one counts."""
    found: dict[TopicPartition, int] = {}
    for topics in offsets:
        for topic, partitions in topics.items():
            for partition, offset in partitions.items():
                found[topic, partition] = min(offset, found.get((topic, partition), offset))
    return found


def common(offsets: Iterable[Mapping[str, Mapping[int, int]]]) -> dict[TopicPartition, int]:
    """The offsets of all sources. Empty if two sources are at different offsets of one partition.

    They may also read topics with the same name in two clusters.
    """
    sources = [lowest([topics]) for topics in offsets]
    found = {place: offset for source in sources for place, offset in source.items()}
    return found if all(source.items() <= found.items() for source in sources) else {}


def _numbered(lines: Sequence[str]) -> list[tuple[str, str]]:
    return [(str(position), line) for position, line in enumerate(lines)]


def _name_and_text(line: str) -> tuple[str, str]:
    name, colon, text = line.partition(":")
    if not colon:
        raise BadCheckpoint(f"expected NAME:OFFSET, found {line[:100]!r}")
    return name, text


def _may_be_kafka(description: str | None) -> bool:
    """A wrapper, such as the one for the trigger availableNow, does not name the source inside it."""
    return description is None or "kafka" in description.lower() or "wrapper" in description.lower()


def _provider_may_be_kafka(providers: object, name: str) -> bool:
    provider = providers.get(name) if isinstance(providers, dict) else None
    said = provider.get("providerName") if isinstance(provider, dict) else None
    return not isinstance(said, str) or "kafka" in said.lower()


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
