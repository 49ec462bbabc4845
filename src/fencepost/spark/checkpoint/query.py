"""The streaming query that called the sink: its id, its checkpoint, its sources."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fencepost.spark.checkpoint.files import CheckpointFiles, files_of, has_gateway, java_class
from fencepost.spark.checkpoint.offsets import (
    NO_OFFSET,
    BadCheckpoint,
    MicroBatchOffsets,
    has_state,
    read_offsets,
    read_query_id,
)
from fencepost.spark.failures import SinkError

QUERY_ID_PROPERTY = "sql.streaming.queryId"
BATCH_ID_PROPERTY = "streaming.sql.batchId"
RUN_ID_PROPERTY = "spark.jobGroup.id"  # Spark groups the jobs of a query by its run, unless the user groups them.


@dataclass(frozen=True, slots=True)
class RunningQuery:
    query_id: str
    run_id: str
    checkpoint: str
    files: CheckpointFiles = field(compare=False, repr=False)  # Those of the checkpoint.
    sources: tuple[str, ...]  # The sources as text; empty if not known.
    kafka_servers: frozenset[str] = frozenset()  # bootstrap.servers of the Kafka sources, as far as Spark shows them.
    in_jvm: Any = field(default=None, compare=False, repr=False)  # None with Spark Connect.
    sources_in_jvm: tuple[Any, ...] = field(default=(), compare=False, repr=False)


def check_threads(session: Any) -> None:
    """Raises SinkError if calls of one Python thread may run in any thread of Spark's JVM.

    Then neither the query that calls the sink can be found, nor the jobs of a write: Spark knows both by the thread.
    """
    from py4j.clientserver import ClientServer

    if not isinstance(session.sparkContext._gateway, ClientServer):
        raise SinkError(
            "PYSPARK_PIN_THREAD is false, so Spark does not show which jobs are those of a write, and whether it ran a "
            "stage of them again\n\nhint: leave PYSPARK_PIN_THREAD out of the environment; it is true by default"
        )


def running_query(session: Any, known: RunningQuery | None = None) -> RunningQuery | None:
    """The streaming query whose foreachBatch function calls this, given `frame.sparkSession`. None if there is none.

    That session is a clone with an empty list of queries, so the lookup uses the state that all sessions share.
    known: the query of the call before, which is probably the same. Then there is little to ask.
    """
    check_threads(session)
    context = session.sparkContext
    if known is not None and context.getLocalProperty(RUN_ID_PROPERTY) == known.run_id:
        return known
    query_id = context.getLocalProperty(QUERY_ID_PROPERTY)
    if not query_id or not context.getLocalProperty(BATCH_ID_PROPERTY):
        return None
    query = _active_query(session, query_id)
    if query is None:
        return None
    found, checkpoint = query.sources(), query.resolvedCheckpointRoot()
    sources = tuple(found.apply(i) for i in range(found.size()))
    return RunningQuery(
        query_id=query_id,
        run_id=query.runId().toString(),
        checkpoint=checkpoint,
        files=files_of(session, checkpoint),
        sources=tuple(source.toString() for source in sources),
        kafka_servers=_kafka_servers(query),
        in_jvm=query,
        sources_in_jvm=sources,
    )


def check_planned(query: RunningQuery, batch_id: int, offsets: MicroBatchOffsets) -> None:
    """Raises BadCheckpoint if the query plans to read to other offsets than the checkpoint has for the micro-batch.

    With Spark Connect the plan of the query cannot be seen.
    """
    if query.in_jvm is None:
        return
    planned = sorted(_planned(query))
    written = sorted(source.text or NO_OFFSET for source in offsets.sources)
    if planned != written:
        raise BadCheckpoint(
            f"offsets/{batch_id} has the source offsets {written}, but the query has planned {planned}: another query "
            f"or program writes to the checkpoint {query.checkpoint}, or its file system returned an older file"
            "\n\nhint: give every query a checkpointLocation of its own; then start this one again"
        )


def _planned(query: RunningQuery) -> Iterator[str]:
    """The ends of the micro-batch that runs, as its sources write them."""
    ends = query.in_jvm.getLatestExecutionContext().endOffsets()
    for source in query.sources_in_jvm:
        yield str(ends.apply(source).json()) if ends.contains(source) else NO_OFFSET


def is_read_from_checkpoint(query: RunningQuery) -> bool | None:
    """Has Spark read the plan of the micro-batch that runs from the checkpoint, so that an earlier run has made it?

    Spark keeps what it has read as text. None with Spark Connect, where the plan cannot be seen.
    """
    if query.in_jvm is None:
        return None
    ends = query.in_jvm.getLatestExecutionContext().endOffsets()
    planned = [ends.apply(source) for source in query.sources_in_jvm if ends.contains(source)]
    return bool(planned) and all(end.getClass().getSimpleName() == "SerializedOffset" for end in planned)


def calling_micro_batch(session: Any) -> str | None:
    """The micro-batch whose foreachBatch function calls this, in words that differ if its rows may differ.

    None: a function of no query calls, or Spark Connect does not show it.
    """
    query = running_query(session) if has_gateway(session) else None
    if query is None:
        return None
    batch_id = int(session.sparkContext.getLocalProperty(BATCH_ID_PROPERTY))
    offsets = read_offsets(query.files, batch_id, query.sources)
    is_known_by_offsets = offsets.identify_rows and not has_state(query.files)
    planned = "" if is_known_by_offsets else f", which Spark planned at {offsets.timestamp_ms}"
    return f"micro-batch {batch_id} of query {query.query_id} with source offsets {offsets.digest}{planned}"


def query_with_sink(java_session: Any, jvm: Any, sink: str, checkpoint: str | None) -> str | None:
    """The id of a running query whose sink has this description. None if there is none.

    checkpoint: the checkpointLocation of a query that is about to start; None: not known. A running query with the same
    one is no match: Spark stops it when the other one starts.
    """
    running = java_session.sharedState().activeStreamingQueries()
    for query_id in running.keySet().toArray() if checkpoint is not None else ():
        query = running.get(query_id)
        if query is not None and query.sink().toString() == sink:
            path = java_class(jvm, "org.apache.hadoop.fs.Path")(checkpoint)
            files = path.getFileSystem(java_session.sessionState().newHadoopConf())
            if files.makeQualified(path).toString() != query.resolvedCheckpointRoot():
                return str(query_id.toString())
    return None


def _active_query(session: Any, query_id: str) -> Any:
    uuid = java_class(session._jvm, "java.util.UUID").fromString(query_id)
    return session._jsparkSession.sharedState().activeStreamingQueries().get(uuid)


def _kafka_servers(query: Any) -> frozenset[str]:
    """From the options of the sources in the query's plan. The plan is not a public API, so some may be missing."""
    from py4j.protocol import Py4JError

    found = set()
    with suppress(Py4JError):
        leaves = query.logicalPlan().collectLeaves()
        for i in range(leaves.size()):
            with suppress(Py4JError):
                found.add(leaves.apply(i).relation().options().get("kafka.bootstrap.servers"))
    return frozenset(str(servers) for servers in found if servers)


def connect_query(session: Any, location: str | None, batch_id: int) -> RunningQuery:
    """The query that calls with this micro-batch, with Spark Connect, given the query's checkpointLocation.

    With Spark Connect a foreachBatch function runs in a process of its own beside the server, with the client's
    session. The session lists the ids of the running queries, but neither which of them is calling nor where its
    checkpoint is. The checkpoint holds the query's id. If that query is running, and is at this micro-batch, the
    location is right.
    """
    running = {str(query.id): str(query.runId) for query in session.streams.active}
    if location is None:
        raise BadCheckpoint(
            "Spark Connect does not tell a foreachBatch function where its query's checkpoint is"
            "\n\nhint: set fencepost.checkpoint.location to the query's checkpointLocation"
        )
    files = files_of(session, location)
    try:
        query_id = read_query_id(files)
        check_position(files, batch_id)
    except BadCheckpoint as e:
        raise BadCheckpoint(f"fencepost.checkpoint.location={location}: {e}") from None
    if query_id not in running:
        raise BadCheckpoint(
            f"fencepost.checkpoint.location={location} is the checkpoint of query {query_id}, but these queries "
            f"run: {', '.join(running) or 'none'}\n\nhint: set it to the checkpointLocation of the query that the sink "
            "belongs to; every query has a sink of its own"
        )
    return RunningQuery(query_id, running[query_id], location, files, sources=())


def check_position(files: CheckpointFiles, batch_id: int) -> None:
    """Raises BadCheckpoint if the query of this checkpoint cannot be in the middle of this micro-batch.

    Spark writes offsets/N, runs micro-batch N, writes commits/N, and only then offsets/N+1.
    """
    expected = {f"offsets/{batch_id}": True, f"offsets/{batch_id + 1}": False, f"commits/{batch_id}": False}
    for path, is_there in expected.items():
        if files.exists(path) != is_there:
            raise BadCheckpoint(
                f"it has {'no ' if is_there else ''}{path}, but the query that calls the sink is in the middle of "
                f"micro-batch {batch_id}: it is the checkpoint of another query\n\nhint: set it to the "
                "checkpointLocation of the query that the sink belongs to; every query has a sink of its own"
            )
