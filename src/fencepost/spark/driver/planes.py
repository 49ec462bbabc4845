"""Where the tasks of a write run: in Spark's own JVM, or in Python workers. Both follow the same lease protocol.

JvmPlane       a job of fencepost-spark.jar (its sources are in `java/`), if the session has the jar
PythonPlane    `task/run.py`, by mapInArrow: everywhere, and slower, because the rows have to get into Python first
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Protocol

from fencepost.client.failures import BadClientSetting
from fencepost.client.oauthbearer import OAUTHBEARER_SETTINGS
from fencepost.client.settings import ClientSettings, parse_settings
from fencepost.spark.checkpoint.files import has_gateway
from fencepost.spark.driver.jar_status import JarStatus
from fencepost.spark.driver.spark_status import SparkStatus
from fencepost.spark.jvm.jar import FACTS_CLASS, WRITE_CLASS, load_from_jar, why_no_jar
from fencepost.spark.lease.messages import TaskResult
from fencepost.spark.lease.server import LeaseServer
from fencepost.spark.lease.wire import encode_topics, result_of
from fencepost.spark.settings import AUTO, JVM, PYTHON
from fencepost.spark.task.login import ASK_DRIVER
from fencepost.spark.task.plan import WritePlan
from fencepost.spark.task.run import RESULT_SCHEMA, spark_task

log = logging.getLogger("fencepost.spark")

# With a login by token.
ONLY_ON_THE_DRIVER = frozenset({*OAUTHBEARER_SETTINGS, "sasl.jaas.config", "sasl.login.callback.handler.class"})


class Plane(Protocol):
    def write(self, rows: Any, plan: WritePlan) -> list[TaskResult]:
        """Run a Spark job that writes the rows. Returns the result of each input partition that Spark accepted."""
        ...

    def spark_status(self, session: Any) -> SparkStatus | None:
        """None with Spark Connect."""
        ...


class PythonPlane:
    def __init__(self, leases: LeaseServer) -> None:
        self._leases = leases

    def write(self, rows: Any, plan: WritePlan) -> list[TaskResult]:
        # The function of the job is stored in files of Spark, so it has no secrets but the token.
        self._leases.offer(plan.write_number, {"settings": settings_of_task(plan.settings, plan.login_id)})
        plan = plan._replace(settings={})
        return [_accepted(row) for row in rows.mapInArrow(spark_task(plan), RESULT_SCHEMA).collect()]

    def spark_status(self, session: Any) -> SparkStatus | None:
        return SparkStatus(session.sparkContext) if has_gateway(session) else None


def settings_of_task(settings: Mapping[str, object], login_id: str) -> dict[str, str]:
    """Without what makes tokens, if there is a login id: a task asks the driver for them."""
    if login_id:
        kept = {name: value for name, value in settings.items() if name not in ONLY_ON_THE_DRIVER}
        settings = {**kept, "oauth_cb": ASK_DRIVER, "sasl.oauthbearer.config": login_id}
    return {name: str(value) for name, value in settings.items() if value is not None}


def _accepted(row: Any) -> TaskResult:
    counts = tuple((c[0], c[1], c[2]) for c in row["counts"])
    topics = tuple((t[0], bytes(t[1]), t[2]) for t in row["topics"])
    return TaskResult(row["write"], row["input"], row["attempt"], counts, topics)


class JvmPlane:
    """java_write: `LeasedWrite` of the jar."""

    def __init__(self, leases: LeaseServer, java_write: Any) -> None:
        self._leases = leases
        self._java_write = java_write

    def write(self, rows: Any, plan: WritePlan) -> list[TaskResult]:
        # The plan has secrets, and the job is stored in files of Spark. Tasks fetch the plan with their token.
        self._leases.offer(plan.write_number, plan_as_json(plan))
        host, port, token, fingerprint = plan.address
        accepted = self._java_write.run(rows._jdf, plan.write_number, host, port, token, fingerprint or None)
        return [result_of(result) for result in json.loads(accepted)]

    def spark_status(self, session: Any) -> SparkStatus:
        facts = load_from_jar(session, FACTS_CLASS)
        # A platform may bring a jar of an earlier version, which has no facts.
        return SparkStatus(session.sparkContext) if facts is None else JarStatus(session.sparkContext, facts)


def plan_as_json(plan: WritePlan) -> Mapping[str, object]:
    """The plan of a write as the tasks in the JVM read it."""
    return {
        "settings": {**settings_as_json(parse_settings(plan.settings)), "login_id": plan.login_id},
        "identity": list(plan.identity),
        "produce_version": plan.produce_version,
        "topic": plan.topic,
        "topics": encode_topics((name, *topic) for name, topic in plan.topics.items()),
        "compression": plan.compression,
        "max_record_batch_bytes": plan.max_record_batch_bytes,
    }


def settings_as_json(settings: ClientSettings) -> dict[str, object]:
    """Without what makes tokens: it stays on the driver."""
    fields = asdict(replace(settings, oauth=None))
    return {**fields.pop("tls"), **fields}


def choose_plane(session: Any, leases: LeaseServer, wanted: str) -> Plane:
    """By the setting fencepost.plane, and by what the session has. Raises BadClientSetting."""
    if wanted != PYTHON and (problem := why_no_jvm(session)):
        if wanted == JVM:
            raise BadClientSetting(f"fencepost.plane={JVM}, but {problem}")
        assert wanted == AUTO
        log.warning("tasks run in Python workers: %s", problem)
        wanted = PYTHON
    return PythonPlane(leases) if wanted == PYTHON else JvmPlane(leases, load_from_jar(session, WRITE_CLASS))


def why_no_jvm(session: Any) -> str | None:
    """Why tasks cannot run in Spark's JVM; None if they can."""
    if not has_gateway(session):
        return "Spark Connect does not show whether its server has fencepost-spark.jar"
    if problem := why_no_jar(session):
        return f"{problem}; writes are faster with it, and fencepost.plane={PYTHON} leaves it as it is"
    return None
