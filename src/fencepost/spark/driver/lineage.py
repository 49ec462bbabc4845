"""What rows are computed from, by calls into Spark's JVM: other RDDs, shuffles and caches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

# Leaves of plans, logical and physical, with the RDD that they read.
RDD_LEAVES = frozenset({"LogicalRDD", "ExternalRDD", "RDDScanExec", "ExternalRDDScanExec"})


class ComputedFrom(NamedTuple):
    """An RDD: those that it is computed from, and the ids of the shuffles in between."""

    parents: tuple[int, ...]
    shuffles: tuple[int, ...] = ()


def collect_lineage(roots: Mapping[int, Any]) -> tuple[dict[int, ComputedFrom], dict[int, Any]]:
    """Everything that these RDDs are computed from, each asked once; and the dependencies that are shuffles, by id."""
    lineage: dict[int, ComputedFrom] = {}
    shuffle_dependencies: dict[int, Any] = {}
    ahead = dict(roots)
    while ahead:
        rdd_id, rdd = ahead.popitem()
        dependencies = rdd.dependencies()
        parents, shuffles = [], []
        # In one text, such as `org.apache.spark.ShuffleDependency@1f2e` for each: few calls of the JVM.
        for position, said in enumerate(dependencies.mkString(" ").split()):
            dependency = dependencies.apply(position)
            parent = dependency.rdd()
            parents.append(int(parent.id()))
            if "ShuffleDependency@" in said:
                shuffles.append(int(dependency.shuffleId()))
                shuffle_dependencies[shuffles[-1]] = dependency
            if parents[-1] not in lineage:
                ahead[parents[-1]] = parent
        lineage[rdd_id] = ComputedFrom(tuple(parents), tuple(shuffles))
    return lineage, shuffle_dependencies


class PlanLeaves(NamedTuple):
    """What a frame reads, also behind the frames that are cached, which are plans within its plan."""

    levels: list[Any]  # The storage levels of these cached frames.
    rdds: dict[int, Any]  # By id.


def collect_plan_leaves(frame: Any) -> PlanLeaves:
    """By the plans and not by RDDs: Spark makes the RDD of a cached frame late, and a broadcast is in no lineage."""
    found = PlanLeaves([], {})
    plan_ids: set[int] = set()
    # A new frame: Spark looks for caches when it first plans a frame, and some may have come later.
    ahead = [frame.select("*")._jdf.queryExecution().withCachedData()]
    while ahead:
        for leaf in _leaves(ahead.pop()):
            kind = leaf.getClass().getSimpleName()
            if kind in RDD_LEAVES:
                rdd = leaf.rdd()
                found.rdds[int(rdd.id())] = rdd
            elif kind == "AdaptiveSparkPlanExec":
                ahead.append(leaf.inputPlan())
            elif kind in ("InMemoryRelation", "InMemoryTableScanExec"):
                cache = (leaf if kind == "InMemoryRelation" else leaf.relation()).cacheBuilder()
                plan = cache.cachedPlan()
                if plan.id() not in plan_ids:
                    plan_ids.add(plan.id())
                    found.levels.append(cache.storageLevel())
                    ahead.append(plan)
    return found


def _leaves(plan: Any) -> Iterator[Any]:
    subqueries = plan.subqueriesAll()
    for one in (plan, *map(subqueries.apply, range(subqueries.size()))):
        leaves = one.collectLeaves()
        yield from map(leaves.apply, range(leaves.size()))
