"""Runs all checks for a pipeline, without writing anything.

from fencepost.spark import check
print(check(spark, settings, topics=["refunds-emitted"]))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fencepost.client.failures import ClientError
from fencepost.spark.checkpoint.files import has_gateway
from fencepost.spark.driver.planes import why_no_jvm
from fencepost.spark.preflight.cluster import check_cluster
from fencepost.spark.preflight.executors import check_executors
from fencepost.spark.preflight.report import OK, Checked, CheckReport, from_message
from fencepost.spark.settings import parse_sink_settings


def check(
    spark: Any,
    settings: Mapping[str, object],
    *,
    topics: Iterable[str] = (),
    source_topics: Iterable[str] = (),
    tasks: int | None = None,
    token: str | None = None,
) -> CheckReport:
    """Check brokers, permissions and limits from here, and ports and packages from the executors of the session.

    settings: those of the sink. topics: outputs beside the setting `topic`. source_topics: what the query reads, for
    the permissions that group.id needs. token: one of `write(token=...)`, for the permission that it needs.
    spark: None leaves out the executors.
    Neither takes the transactional.id over nor writes. Raises BadClientSetting.
    """
    parsed = parse_sink_settings(settings)
    outputs = sorted({*topics, *([parsed.topic] if parsed.topic else [])})
    try:
        findings, brokers = check_cluster(parsed, outputs, sorted(source_topics), token)
    except ClientError as e:
        return CheckReport((from_message("brokers from the driver", str(e)),))
    if spark is not None:
        findings.append(_check_session(spark))
        findings += check_executors(spark, parsed, brokers, tasks)
    return CheckReport(tuple(findings))


def _check_session(spark: Any) -> Checked:
    kind = "" if has_gateway(spark) else " Connect"
    has_jar = why_no_jvm(spark) is None
    hint = None
    if not has_jar and has_gateway(spark):
        hint = "writes are faster with the jar: spark-submit --jars $(fencepost spark-jar)"
    return Checked(f"Spark{kind}", OK, f"{spark.version}, {'with' if has_jar else 'without'} fencepost-spark.jar", hint)
