"""Asks the executors of a session: can they reach the brokers and the driver, and run the tasks of the sink?

Two small Spark jobs. The first runs `probe.py` in Python workers. The second is a write without rows. Its tasks run
where those of the sink will, greet the driver's lease service, and send nothing to Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fencepost.client.oauthbearer import token_source
from fencepost.client.settings import parse_settings
from fencepost.client.transaction import ProducerIdentity
from fencepost.spark.checkpoint.files import has_gateway
from fencepost.spark.driver.dataframes import select_columns
from fencepost.spark.driver.job_failures import sentence_of, setup_problem
from fencepost.spark.driver.lease_place import start_lease_server
from fencepost.spark.driver.planes import JvmPlane, choose_plane
from fencepost.spark.lease.port import LeasePortTaken, host_port
from fencepost.spark.lease.rules import LeaseTable
from fencepost.spark.lease.server import LeaseServer
from fencepost.spark.preflight import probe as probe_module
from fencepost.spark.preflight.report import OK, PROBLEM, UNKNOWN, Checked, from_message
from fencepost.spark.settings import SinkSettings
from fencepost.spark.task.plan import WritePlan
from fencepost.spark.task.topics import PinnedTopic

MOST_TASKS = 64
LEASE_TIMEOUT_MS = 30_000
TOPIC = "fencepost-check"


def check_executors(
    spark: Any, settings: SinkSettings, brokers: Mapping[int, tuple[str, int]], tasks: int | None = None
) -> list[Checked]:
    """tasks: how many to start; None: as many as the session has cores."""
    if tasks is None:
        tasks = min(int(spark.sparkContext.defaultParallelism), MOST_TASKS) if has_gateway(spark) else 2
    if not has_gateway(spark):
        why = "with Spark Connect the sink runs beside the server, so its lease port cannot be tried from here"
        return [*_probe(spark, [*brokers.values()], _names(brokers), tasks), Checked("lease port", UNKNOWN, why)]
    try:
        leases = start_lease_server(settings, spark)
    except LeasePortTaken as e:
        return [from_message("lease port", str(e))]
    try:
        addresses = [*brokers.values(), (leases.host, leases.port)]
        names = [*_names(brokers), f"the driver's lease port {host_port(leases.host, leases.port)}"]
        return [*_probe(spark, addresses, names, tasks), _write_nothing(spark, settings, leases, tasks)]
    finally:
        leases.stop()


def _names(brokers: Mapping[int, tuple[str, int]]) -> list[str]:
    return [f"broker {node_id} at {host_port(*address)}" for node_id, address in brokers.items()]


def _probe(spark: Any, addresses: Sequence[tuple[str, int]], names: Sequence[str], tasks: int) -> list[Checked]:
    import pyspark.cloudpickle
    from pyspark.sql.functions import udf

    cloudpickle: Any = pyspark.cloudpickle

    subject = "brokers and driver from the executors"
    # By value: the executors need not have the module.
    cloudpickle.register_pickle_by_value(probe_module)
    try:
        run = udf(_asking(addresses), "string")
        rows = spark.range(0, tasks, 1, tasks).select(run("id").alias("found")).collect()
    except Exception as e:
        return [Checked(subject, UNKNOWN, f"no Python worker ran on the executors: {sentence_of(e) or e}")]
    finally:
        cloudpickle.unregister_pickle_by_value(probe_module)
    return judge_probes(subject, [json.loads(row["found"]) for row in rows], names)


def _asking(addresses: Sequence[tuple[str, int]]) -> Callable[[int], str]:
    probe, given = probe_module.probe, [(host, port) for host, port in addresses]
    return lambda _: probe(given)


def judge_probes(subject: str, found: Iterable[Mapping[str, Any]], names: Sequence[str]) -> list[Checked]:
    """One finding for each address that an executor cannot reach; one for all if there is none."""
    hosts: dict[str, str] = {}
    problems: dict[tuple[str, str], str] = {}
    for one in found:
        hosts[one["host"]] = one["python"]
        for name, problem in zip(names, one["problems"]):
            if problem is not None:
                problems[one["host"], name] = problem
    hint = "let executors connect there: a firewall or network policy is in the way, or the name is unknown to them"
    where = "; ".join(f"{host} (Python {python})" for host, python in sorted(hosts.items()))
    return [
        Checked(subject, PROBLEM, f"{host} cannot reach {name}: {problem}", hint)
        for (host, name), problem in problems.items()
    ] or [Checked(subject, OK, f"{', '.join(names)}; from {where}")]


def _write_nothing(spark: Any, settings: SinkSettings, leases: LeaseServer, tasks: int) -> Checked:
    subject = "tasks of the sink"
    try:
        plane = choose_plane(spark, leases, settings.plane)
        login = parse_settings(settings.client).oauth
        tokens = None if login is None else token_source(login)
        address = leases.open(LeaseTable(lease_timeout_ms=LEASE_TIMEOUT_MS), lambda _: None, tokens=tokens)
        plan = WritePlan(
            settings.client,
            ProducerIdentity(settings.transactional_id, -1, -1),
            0,
            address,
            write_number=0,
            topic=TOPIC,
            topics={TOPIC: PinnedTopic(bytes(16), 1)},
            compression=settings.compression,
            max_record_batch_bytes=settings.max_record_batch_bytes,
            login_id=tokens.id if tokens is not None else "",
        )
        # Not `false`: Spark would leave the tasks out.
        rows = spark.range(0, tasks, 1, tasks).where("id < 0").selectExpr("cast(id AS string) AS value")
        accepted = plane.write(select_columns(rows, TOPIC), plan)
        where = "Spark's JVM" if isinstance(plane, JvmPlane) else "Python workers"
        return Checked(subject, OK, f"{len(accepted)} ran in {where}, and greeted the driver")
    except Exception as e:
        broken = leases.broken
        said = setup_problem(e) or (broken.reason if broken else None) or sentence_of(e) or str(e)
        return from_message(subject, said)
