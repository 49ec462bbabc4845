"""What Spark wrote down about a batch before it ran: its query, its source offsets, when it was planned.

`<checkpoint>/offsets/N` has a version, a line of metadata, and a line for each source. Version 1 lists sources by
position; version 2 (Spark 4.1) puts a name and a colon in front. `-` stands for a source without data so far. The
file of a batch is written once, before the batch first runs, and is the same at every rerun.

Parsing is pure; files come from a reader that is rooted at the checkpoint: `LocalFiles`, `HadoopFiles` for anything
that Hadoop can read, `SessionFiles` where a session has no Java gateway (Spark Connect).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fencepost.spark.failures import SinkError

NO_OFFSET = "-"
DIGEST_CHARS = 32
QUERY_ID_PROPERTY = "sql.streaming.queryId"
BATCH_ID_PROPERTY = "streaming.sql.batchId"


class BadCheckpoint(SinkError):
    """A file of the checkpoint that should be there is not, or is not what Spark writes."""


class Reader(Protocol):
    def read(self, path: str) -> str | None:
        """The text of a file under the checkpoint; None: there is none."""
        ...

    def exists(self, path: str) -> bool:
        """Is there a file or folder?"""
        ...


@dataclass(frozen=True, slots=True)
class SourceEnd:
    """Where a batch ends in one source."""

    name: str  # The position in version 1: "0", "1", ...
    text: str | None  # As the source wrote it; None: no data so far.
    kafka_ends: Mapping[str, Mapping[int, int]] | None = None  # None: not a Kafka source.


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    sources: tuple[SourceEnd, ...]
    digest: str
    timestamp_ms: int | None

    @property
    def kafka_ends(self) -> list[Mapping[str, Mapping[int, int]]]:
        """For each Kafka source: topic -> partition -> the offset after the last one in the batch."""
        return [s.kafka_ends for s in self.sources if s.kafka_ends is not None]

    @property
    def consumed(self) -> dict[tuple[str, int], int]:
        """Up to where every Kafka source of the query has read: what a consumer group may commit.

        Two sources on one topic may be at different offsets; everything is processed up to the lower.
        """
        lowest: dict[tuple[str, int], int] = {}
        for ends in self.kafka_ends:
            for topic, partitions in ends.items():
                for partition, offset in partitions.items():
                    lowest[topic, partition] = min(offset, lowest.get((topic, partition), offset))
        return lowest


def read_batch(reader: Reader, batch_id: int, descriptions: Sequence[str] | None = None) -> BatchOffsets:
    """The offsets of a batch. `descriptions`: what the sources of the running query call themselves, in order."""
    path = f"offsets/{batch_id}"
    text = reader.read(path)
    if text is None:
        raise BadCheckpoint(f"the checkpoint has no {path}, which Spark writes before it runs a batch")
    try:
        return parse_offsets(text, descriptions)
    except BadCheckpoint as e:
        raise BadCheckpoint(f"{path}: {e}") from e


def read_query_id(reader: Reader) -> str:
    """The id that a query keeps for as long as its checkpoint lives."""
    text = reader.read("metadata")
    if text is None:
        raise BadCheckpoint("the checkpoint has no file `metadata`: it does not belong to a query yet")
    document = _json_object(text)
    if document is None or not isinstance(document.get("id"), str):
        raise BadCheckpoint(f"metadata: expected a document with an id, found {text[:100]!r}")
    return str(document["id"])


def is_committed(reader: Reader, batch_id: int) -> bool:
    """Does Spark itself know that the batch is done? Then it will not run it again."""
    return reader.exists(f"commits/{batch_id}")


def has_state(reader: Reader) -> bool:
    """Does the query keep state? Then each of its batches has to run, or the state store misses one."""
    return reader.exists("state")


def parse_offsets(text: str, descriptions: Sequence[str] | None = None) -> BatchOffsets:
    # Not splitlines(): inside a JSON string it would find ends of lines where Spark sees none.
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
    return BatchOffsets(
        tuple(sources), digest_of(lines), timestamp_ms if type(timestamp_ms) is int and timestamp_ms > 0 else None
    )


def digest_of(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:DIGEST_CHARS]


def parse_kafka_ends(text: str) -> dict[str, dict[int, int]] | None:
    """`{"orders":{"0":123}}` as numbers; None if it is anything else.

    No other source of Spark's own writes this form; some connectors of others do, so a description decides if there
    is one.
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


def _numbered(lines: Sequence[str]) -> list[tuple[str, str]]:
    return [(str(position), line) for position, line in enumerate(lines)]


def _name_and_text(line: str) -> tuple[str, str]:
    name, colon, text = line.partition(":")
    if not colon:
        raise BadCheckpoint(f"expected NAME:OFFSET, found {line[:100]!r}")
    return name, text


def _may_be_kafka(description: str | None) -> bool:
    """Wrappers, as for a trigger that stops at the end, do not say what they wrap."""
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


# --- files --------------------------------------------------------------------------------------------------


class LocalFiles:
    """A checkpoint on this machine's disk."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)

    def read(self, path: str) -> str | None:
        try:
            return (self._root / path).read_bytes().decode()
        except FileNotFoundError:
            return None

    def exists(self, path: str) -> bool:
        return (self._root / path).exists()


class HadoopFiles:
    """A checkpoint on any file system that Hadoop knows, read through the driver's JVM."""

    def __init__(self, session: Any, root: str) -> None:
        self._root = session._jvm.org.apache.hadoop.fs.Path(root)
        self._path = session._jvm.org.apache.hadoop.fs.Path
        self._files = self._root.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())

    def read(self, path: str) -> str | None:
        full = self._path(self._root, path)
        if not self._files.exists(full):
            return None
        stream = self._files.open(full)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def exists(self, path: str) -> bool:
        return bool(self._files.exists(self._path(self._root, path)))


class SessionFiles:
    """A checkpoint read with Spark's own file source, for sessions without a JVM at hand. Runs a small job."""

    def __init__(self, session: Any, root: str) -> None:
        self._session = session
        self._root = root.rstrip("/")

    def read(self, path: str) -> str | None:
        if not self.exists(path):
            return None
        rows = self._session.read.text(f"{self._root}/{path}", wholetext=True).collect()
        # Spark makes no row of an empty file.
        return str(rows[0][0]) if rows else ""

    def exists(self, path: str) -> bool:
        from pyspark.errors import AnalysisException

        try:
            # Asking for the columns makes Spark look at the path, and nothing more.
            _ = self._session.read.format("binaryFile").load(f"{self._root}/{path}").columns
        except AnalysisException as e:
            if "PATH_NOT_FOUND" in str(e):
                return False
            raise
        return True


def files_of(session: Any, root: str) -> Reader:
    if has_gateway(session):
        return HadoopFiles(session, root)
    # With Spark Connect, foreachBatch functions run on the server's machine, and so see its disk.
    return LocalFiles(root.removeprefix("file:")) if root.startswith("file:/") else SessionFiles(session, root)


def has_gateway(session: Any) -> bool:
    """A classic session talks to a JVM in the same container; one of Spark Connect does not."""
    return hasattr(session, "_jsparkSession")


# --- the query that is running ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunningQuery:
    query_id: str
    run_id: str
    checkpoint: str
    sources: tuple[str, ...]  # What they call themselves; empty: not known.
    kafka_servers: frozenset[str] = frozenset()  # bootstrap.servers of the sources that have any, where Spark tells.


def running_query(session: Any) -> RunningQuery | None:
    """The streaming query whose foreachBatch function calls this, with `frame.sparkSession`; None: there is none.

    That session is a clone with an empty list of queries, so the query is looked up where all sessions share.
    """
    context = session.sparkContext
    query_id = context.getLocalProperty(QUERY_ID_PROPERTY)
    batch_id = context.getLocalProperty(BATCH_ID_PROPERTY)
    if not query_id or not batch_id:
        return None
    uuid = session._jvm.java.util.UUID.fromString(query_id)
    query = session._jsparkSession.sharedState().activeStreamingQueries().get(uuid)
    if query is None:
        return None
    sources = query.sources()
    return RunningQuery(
        query_id=query_id,
        run_id=query.runId().toString(),
        checkpoint=query.resolvedCheckpointRoot(),
        sources=tuple(sources.apply(i).toString() for i in range(sources.size())),
        kafka_servers=_kafka_servers(query),
    )


def _kafka_servers(query: Any) -> frozenset[str]:
    """From the options of the sources in the query's plan, which is nobody's promise: what is not there is not told."""
    from py4j.protocol import Py4JError

    found = set()
    with suppress(Py4JError):
        leaves = query.logicalPlan().collectLeaves()
        for i in range(leaves.size()):
            with suppress(Py4JError):
                found.add(leaves.apply(i).relation().options().get("kafka.bootstrap.servers"))
    return frozenset(str(servers) for servers in found if servers)


def connect_query(session: Any, location: str | None) -> RunningQuery:
    """The same with Spark Connect, given the query's checkpointLocation.

    There a foreachBatch function runs in a process of its own beside the server, under a session that is the client's.
    That session knows which queries run and their ids, but neither which of them calls nor where its checkpoint is. The
    checkpoint knows the query's id; that it is one of those that run shows that the location is right.
    """
    running = {str(query.id): str(query.runId) for query in session.streams.active}
    if location is None:
        raise BadCheckpoint(
            "Spark Connect does not tell a foreachBatch function where its query's checkpoint is"
            "\n\nhint: set fencepost.checkpoint.location to the query's checkpointLocation"
        )
    try:
        query_id = read_query_id(files_of(session, location))
    except BadCheckpoint as e:
        raise BadCheckpoint(f"fencepost.checkpoint.location={location}: {e}") from None
    if query_id not in running:
        raise BadCheckpoint(
            f"fencepost.checkpoint.location={location} is the checkpoint of query {query_id}, but those that run are "
            f"{', '.join(running) or 'none'}\n\nhint: set it to the checkpointLocation of the query that the sink "
            "belongs to; every query has a sink of its own"
        )
    return RunningQuery(query_id, running[query_id], location, sources=())
