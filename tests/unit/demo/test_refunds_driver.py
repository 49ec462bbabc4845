"""What a Spark job that failed has to say, out of everything that it wrote."""

from __future__ import annotations

import os
import subprocess
import sys

from fencepost.demo.refunds.driver import explain, processes_of_session

UNRESOLVED = """\
\t\t::          UNRESOLVED DEPENDENCIES         ::
\t\t:: org.apache.spark#spark-sql-kafka-0-10_2.13;4.3.0: not found
Exception in thread "main" java.lang.RuntimeException: \
[unresolved dependency: org.apache.spark#spark-sql-kafka-0-10_2.13;4.3.0: not found]
\tat org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:568)
pyspark.errors.exceptions.base.PySparkRuntimeError: [JAVA_GATEWAY_EXITED] Java gateway process exited.
"""

REFUSED = """\
Traceback (most recent call last):
  File "job.py", line 1, in main
fencepost.spark.failures.BatchRefused: Kafka has micro-batch 4 of this query, but Spark runs micro-batch 2
pyspark.errors.exceptions.captured.StreamingQueryException: [STREAM_FAILED] Query terminated with exception: no
=== Streaming Query ===
Logical Plan: and so on
"""


def test_a_kafka_source_that_cannot_be_fetched_is_named_with_what_to_do() -> None:
    problem, hint = explain(UNRESOLVED)
    assert problem == "Spark cannot fetch its Kafka source, org.apache.spark#spark-sql-kafka-0-10_2.13;4.3.0"
    assert "pip install 'pyspark==4.0.*'" in hint


def test_other_failures_are_reported_with_the_last_exception_and_the_last_lines() -> None:
    problem, hint = explain(REFUSED)
    assert problem.endswith("[STREAM_FAILED] Query terminated with exception: no")
    assert "  Logical Plan: and so on" in hint


def test_a_silent_job_is_called_that() -> None:
    assert explain("")[0] == "its log does not say why"


def test_the_processes_of_a_session_are_those_that_run_in_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as child:
        assert processes_of_session(child.pid) == [child.pid]
        assert child.pid not in processes_of_session(os.getsid(0))
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert processes_of_session(child.pid) == [], "one that has ended and was not waited for does not count"
