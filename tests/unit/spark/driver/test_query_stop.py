"""How the sink tells a stopped query from a failed job."""

from __future__ import annotations

import pytest

from fencepost.spark.driver.query_stop import was_cancelled, was_stopped

CANCELLED = "[SPARK_JOB_CANCELLED] Job 7 cancelled "


class JavaException:
    """As py4j shows it."""

    def __init__(self, name: str, message: str) -> None:
        self.name, self.message = name, message

    def getClass(self) -> JavaException:  # noqa: N802 - the name in Java.
        return self

    def getName(self) -> str:  # noqa: N802
        return self.name

    def getMessage(self) -> str:  # noqa: N802
        return self.message


def error(name: str, message: str) -> Exception:
    raised = Exception(message)
    raised.java_exception = JavaException(name, message)  # type: ignore[attr-defined]
    return raised


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("java.lang.InterruptedException", ""),
        ("java.nio.channels.ClosedByInterruptException", ""),
        (
            "org.apache.spark.SparkException",
            CANCELLED + "Query refunds [id = a, runId = b] was stopped SQLSTATE: XXKDA",
        ),
        ("org.apache.spark.SparkException", CANCELLED + "Query [id = a, runId = b] was stopped SQLSTATE: XXKDA"),
        ("org.apache.spark.SparkException", CANCELLED + "part of cancelled job group 81f6 SQLSTATE: XXKDA"),
    ],
)
def test_an_interruption_and_a_cancelled_job_group_are_a_stopped_query(name: str, message: str) -> None:
    assert was_stopped(error(name, message))


@pytest.mark.parametrize(
    "message",
    [
        CANCELLED + "part of cancelled job tags fencepost-1 SQLSTATE: XXKDA",
        CANCELLED + "as part of cancellation of all jobs SQLSTATE: XXKDA",
        "Job aborted due to stage failure: ValueError: the Query was stopped",
    ],
)
def test_other_failures_are_not(message: str) -> None:
    assert not was_stopped(error("org.apache.spark.SparkException", message))
    assert not was_stopped(ValueError(message))


def test_a_job_that_is_cancelled_with_all_others_is_not_run_again_and_one_that_the_sink_cancels_is() -> None:
    cancelled = (CANCELLED + "as part of cancellation of all jobs", CANCELLED + "part of cancelled job group 81f6")
    for message in cancelled:
        assert was_cancelled(error("org.apache.spark.SparkException", message))
    assert not was_cancelled(error("org.apache.spark.SparkException", CANCELLED + "part of cancelled job tags f-1"))
