"""The error of a failed Spark job: its class, the line that says what was wrong, and problems of the set-up."""

from __future__ import annotations

import re

from fencepost import __version__

# In the traceback of a Python worker, which Spark passes on as text.
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(fencepost|crc32c|cramjam|numpy|pyarrow)[.']")
_OTHER_VERSION = re.compile(
    r"ModuleNotFoundError: No module named 'fencepost\.[^\n]*"
    r"|ImportError: cannot import name [^\n]* from 'fencepost\.[^\n]*"
    r"|AttributeError: Can't get attribute [^\n]* on <module 'fencepost\.[^\n]*"
)
_NO_JAR = re.compile(
    r"(?:ClassNotFoundException|NoClassDefFoundError|InvalidClassException): fencepost[./]spark[./][^\s;]*"
)
_UNREACHABLE = re.compile(r"lease\.(?:client\.)?DriverUnreachable: ([^\n]*\n\nhint: [^\n]*)")
# Rows of `compute_once` were on an executor that died.
LOST_CHECKPOINT = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
_EXCEPTION_LINE = re.compile(r"^(?!hint: )[A-Za-z_][\w.]*: .*", re.MULTILINE)
_JAVA_TRACE = re.compile(r"JVM stacktrace|^\s+at [\w.$]+\(", re.MULTILINE)


def java_exception_of(error: BaseException) -> tuple[str, str]:
    """The class and message of a Java exception from Spark; empty for any other exception."""
    java = getattr(error, "java_exception", None)
    if java is not None:
        return str(java.getClass().getName()), str(java.getMessage() or "")
    if type(error).__module__ == "pyspark.errors.exceptions.connect" and type(error).__name__ == "SparkException":
        return "org.apache.spark.SparkException", str(error)
    return "", ""


def is_lost_worker(error: BaseException) -> bool:
    """The job failed because a Python worker or an executor died, and not because code raised an exception."""
    name, message = java_exception_of(error)
    lost = ("Job aborted due to stage failure", LOST_CHECKPOINT)
    return name == "org.apache.spark.SparkException" and any(text in message for text in lost)


def setup_problem(error: BaseException) -> str | None:
    """A problem of the cluster and not of the micro-batch, in one line. Another attempt would fail as well."""
    text = _without_java_trace(str(error))
    if found := _OTHER_VERSION.search(text):
        return (
            f"the Python workers on the executors have another version of fencepost than the driver, which has "
            f"{__version__} ({found[0]})\n\nhint: install the same version everywhere, and restart the executors"
        )
    if found := _NO_MODULE.search(text):
        return (
            f"the Python workers on the executors cannot import {found[1]}, which the sink's tasks need"
            "\n\nhint: install fencepost[spark] for the workers (spark.pyspark.python), or ship it with "
            "the job: a copy of its wheel, renamed to .zip, by spark.submit.pyFiles, --py-files or addArtifacts(..., "
            "pyfile=True); where numpy, pyarrow, crc32c and cramjam are missing as well, a packed environment by "
            "spark.archives"
        )
    if found := _NO_JAR.search(text):
        return (
            f"the executors do not have the fencepost-spark.jar of the driver ({found[0]})\n\nhint: give it to driver "
            "and executors with spark.jars, `--jars $(fencepost spark-jar)` or fencepost.spark.configure; "
            "fencepost.plane=python does without it"
        )
    if found := _UNREACHABLE.search(text):
        return found[1]
    return None


def sentence_of(error: BaseException) -> str:
    """The line of a Spark error that says what was wrong."""
    _, message = java_exception_of(error)
    if message:
        return message.partition("\n")[0]
    text = _without_java_trace(str(error)).strip()
    found = _EXCEPTION_LINE.findall(text)
    return str(found[-1]) if found else text.partition("\n")[0]


def _without_java_trace(text: str) -> str:
    found = _JAVA_TRACE.search(text)
    return text[: found.start()] if found else text
