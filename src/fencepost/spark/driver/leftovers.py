"""The data that Spark keeps of a broken attempt: shuffle files, and cached rows that were computed from them.

All attempts at a micro-batch read the same RDD, so they share its shuffles. After an executor has died, Spark would run
only the tasks whose shuffle files are gone. If a stage places its rows differently each time, which Spark does not
know of a Python function, the new files and the surviving ones do not fit together: rows are lost, and others are
doubled. So before the next attempt Spark has to forget all of it, and computes every stage anew.

A plain frame is planned anew for each attempt. Only the RDDs and the caches that it is made of are shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any, NamedTuple

from fencepost.spark.driver.lineage import ComputedFrom, collect_lineage
from fencepost.spark.driver.spark_env import part_of_spark_env
from fencepost.spark.failures import SinkError

OLD_PROTOCOL = "spark.shuffle.useOldFetchProtocol"
START_AGAIN = "start the query again: a new run computes everything anew"


class Leftovers(NamedTuple):
    shuffles: frozenset[int]
    cached: frozenset[int]  # RDDs whose stored rows come out of these shuffles.


def find_leftovers(
    lineage: Mapping[int, ComputedFrom], roots: Iterable[int], persisted: Set[int], *, is_stream: bool
) -> Leftovers:
    """The data that Spark must forget, so that it computes the RDDs `roots` anew. The numbers are ids of RDDs.

    A stream may read a cached frame that other queries read as well. That one stays, with the shuffles behind it. What
    the user's function has cached of the micro-batch does not stay.
    """
    own = _reach(lineage, roots, persisted if is_stream else frozenset())
    if is_stream:
        made_of_it = {rdd for rdd in persisted if not own.isdisjoint(_reach(lineage, [rdd]))}
        own |= _reach(lineage, made_of_it, persisted - made_of_it)
    behind_a_shuffle = {rdd for rdd in own & persisted if any(lineage[r].shuffles for r in _reach(lineage, [rdd]))}
    return Leftovers(
        frozenset(shuffle for rdd in own for shuffle in lineage[rdd].shuffles), frozenset(behind_a_shuffle)
    )


def _reach(lineage: Mapping[int, ComputedFrom], roots: Iterable[int], stop_at: Set[int] = frozenset()) -> set[int]:
    """The roots and what they are computed from, up to `stop_at`."""
    found = set(roots)
    ahead = list(found)
    while ahead:
        new = set(lineage[ahead.pop()].parents) - found - stop_at
        found |= new
        ahead += new
    return found


def forget_leftovers(context: Any, frame: Any, *, is_stream: bool) -> None:
    """Raises SinkError where Spark cannot compute the frame anew."""
    roots = _roots(frame, is_stream=is_stream)
    # As an array: the end of a Java iterator is an exception, which PySpark examines with 75 calls of the JVM.
    rdds = context._jsc.getPersistentRDDs()
    persisted = {rdd_id: rdds.get(rdd_id).rdd() for rdd_id in rdds.keySet().toArray()}
    lineage, dependencies = collect_lineage(roots | persisted)
    leftovers = find_leftovers(lineage, roots, persisted.keys(), is_stream=is_stream)
    if leftovers.shuffles and context.getConf().get(OLD_PROTOCOL, "false") == "true":
        # A map task keeps a shuffle file that exists, even if it has computed another one.
        raise SinkError(
            f"the micro-batch cannot be run again, because {OLD_PROTOCOL} is true: Spark would use shuffle files of "
            f"the attempt that was broken\n\nhint: {START_AGAIN}; with {OLD_PROTOCOL}=false the sink does it by itself"
        )
    tracker, blocks = (part_of_spark_env(context, name) for name in ("mapOutputTracker", "blockManager"))
    for shuffle_id in leftovers.shuffles:
        if tracker.containsShuffle(shuffle_id):
            tracker.unregisterAllMapAndMergeOutput(shuffle_id)
            dependencies[shuffle_id].newShuffleMergeState()
    for rdd_id in leftovers.cached:
        blocks.master().removeRdd(rdd_id, True)


def _roots(frame: Any, *, is_stream: bool) -> dict[int, Any]:
    """The RDDs that all attempts share: they are leaves of the frame's plan."""
    # A new frame: Spark looks for caches when it first plans a frame, and some may have come later.
    plan = frame.select("*")._jdf.queryExecution()
    leaves = (plan.analyzed() if is_stream else plan.withCachedData()).collectLeaves()
    found = {}
    for leaf in map(leaves.apply, range(leaves.size())):
        kind = leaf.getClass().getSimpleName()
        if kind in ("LogicalRDD", "ExternalRDD"):
            rdd = leaf.rdd()
        elif kind == "InMemoryRelation":
            rdd = leaf.cacheBuilder().cachedColumnBuffers()
        else:
            continue
        found[int(rdd.id())] = rdd
    return found
