"""The cause of a failed Spark job, from the text of its exception."""

from __future__ import annotations

import pytest

from fencepost import __version__
from fencepost.spark.driver.job_failures import sentence_of, setup_problem

CLASSIC = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "task.py", line 7, in run
    raise it
{}
"""
# Spark Connect repeats the message, and adds the Java stack trace.
CONNECT = (
    CLASSIC
    + """
  File "task.py", line 7, in run
    raise it
{}

	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
	at java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace:)"""
)


def failed(text: str, said: str) -> Exception:
    return Exception(text.replace("{}", said))


@pytest.mark.parametrize("text", [CLASSIC, CONNECT])
class TestTextOfAWorker:
    def test_the_sentence_is_that_of_the_exception(self, text: str) -> None:
        said = "ValueError: line 7: not to my liking"
        assert sentence_of(failed(text, said)) == said
        assert sentence_of(failed(text, f"{said}\n\nhint: another line")) == said
        assert setup_problem(failed(text, "ValueError: no")) is None

    @pytest.mark.parametrize("module", ["fencepost", "pyarrow", "crc32c", "numpy.core"])
    def test_a_missing_package_is_named_with_ways_to_ship_it(self, text: str, module: str) -> None:
        said = setup_problem(failed(text, f"ModuleNotFoundError: No module named '{module}'"))
        assert said is not None
        assert said.startswith(f"the Python workers on the executors cannot import {module.partition('.')[0]}, which")
        assert "spark.submit.pyFiles" in said

    def test_a_missing_package_other_than_fencepost_is_not_explained(self, text: str) -> None:
        assert setup_problem(failed(text, "ModuleNotFoundError: No module named 'fencepostal'")) is None

    @pytest.mark.parametrize(
        "said",
        [
            "ModuleNotFoundError: No module named 'fencepost.spark.task.run'",
            "ImportError: cannot import name 'PinnedTopic' from 'fencepost.spark.task.run' (/opt/run.py)",
            "AttributeError: Can't get attribute 'PinnedTopic' on <module 'fencepost.spark.task.run' from '/run.py'>",
        ],
    )
    def test_another_version_of_the_package_differs_from_a_missing_package(self, text: str, said: str) -> None:
        found = setup_problem(failed(text, said))
        assert found is not None
        assert f"another version of fencepost than the driver, which has {__version__}" in found
        assert said.strip(")'") in found

    def test_an_unreachable_driver_is_reported_with_its_hint_and_nothing_else(self, text: str) -> None:
        said = "task 3 cannot reach the driver at host:99: refused\n\nhint: open it"
        assert setup_problem(failed(text, f"fencepost.spark.lease.client.DriverUnreachable: {said}")) == said


def test_a_text_without_an_exception_is_its_first_line() -> None:
    assert sentence_of(Exception("Job aborted due to stage failure\n\tat org.apache.spark.Some.thing(a:1)")) == (
        "Job aborted due to stage failure"
    )
    assert sentence_of(Exception("")) == ""


@pytest.mark.parametrize(
    "said",
    [
        "java.lang.ClassNotFoundException: fencepost.spark.LeasedWrite$Task",
        "java.io.InvalidClassException: fencepost.spark.lease.LeaseAddress; local class incompatible",
    ],
)
def test_executors_without_the_jar_of_the_driver_are_named_with_ways_to_give_it_to_them(said: str) -> None:
    lost = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3"
    trace = "\tat java.base/java.lang.ClassLoader.loadClass(ClassLoader.java:1)"
    problem = setup_problem(Exception(f"{lost}: {said}\n{trace}"))
    assert problem is not None
    assert problem.startswith("the executors do not have the fencepost-spark.jar of the driver (")
    assert "--jars $(fencepost spark-jar)" in problem
