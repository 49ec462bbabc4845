"""The objects that Spark's JVM calls for `format("fencepost")`: the Python ends of `PythonSide` and `PythonSink`.

The calls arrive in a thread whose calls back into the JVM run in the calling JVM thread, as those of foreachBatch do.
So the sink finds the query, tags its jobs, and is interrupted with it. Answers are JSON: see `Answer` in `java/`.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from fencepost.client.failures import BadClientSetting, ClientError
from fencepost.spark.checkpoint.query import query_with_sink
from fencepost.spark.driver.dataframes import UnwritableFrame
from fencepost.spark.driver.progress import BatchProgress
from fencepost.spark.driver.runner import refuse_missing_topic
from fencepost.spark.failures import QueryStopped, SinkError
from fencepost.spark.format.options import FormatOptions, parse_options
from fencepost.spark.sink import ExactlyOnceSink

log = logging.getLogger("fencepost.spark")

# Exceptions with a message for the user. Any other exception is shown with its traceback.
EXPECTED = (SinkError, ClientError, UnwritableFrame)
CHECKPOINT = "checkpointlocation"
MODES = ("Append", "ErrorIfExists")


class PythonSide:
    def __init__(self, context: Any) -> None:
        self._context = context

    def open(self, options: str) -> PythonSink:
        return PythonSink(self._context, json.loads(options))

    def write(self, options: str, mode: str, frame: Any) -> str:
        whole = _frame(frame, _session_of(self._context, frame))
        return _answer(lambda: self._write(json.loads(options), mode, whole))

    def _write(self, given: Mapping[str, str], mode: str, frame: Any) -> BatchProgress:
        if mode not in MODES:
            raise BadClientSetting(f"mode {mode.lower()} is none of append, errorifexists: Kafka topics only grow")
        options = parse_options(given, is_stream=False)
        sink = _sink_of(options)
        try:
            sink.write(frame, token=options.token)
            return sink.recent_progress[-1]
        finally:
            sink.close()

    class Java:
        implements = ("fencepost.spark.format.PythonSide",)


class PythonSink:
    """The sink of one streaming query. It is created when the query starts, before Spark plans a micro-batch."""

    def __init__(self, context: Any, given: Mapping[str, str]) -> None:
        self._context = context
        self._given = given
        self._sink: ExactlyOnceSink | None = None
        self._session: Any = None  # All micro-batches of a query have the same.

    def check(self, java_session: Any) -> str:
        return _answer(lambda: self._create(java_session))

    def name(self) -> str:
        assert self._sink is not None, "the options are good"
        return f"fencepost[{self._sink.transactional_id} in {self._sink.settings.bootstrap_servers}]"

    def addBatch(self, frame: Any, batch_id: int) -> str:  # noqa: N802 - the name in Java.
        return _answer(lambda: self._add_batch(frame, batch_id))

    def close(self) -> None:
        """Called when the query has ended. Gives up the transactional.id."""
        if self._sink is not None:
            try:
                self._sink.close()
            except Exception:  # Spark's JVM has no use for it.
                log.exception("the sink of transactional.id %s did not close", self._sink.transactional_id)

    def _create(self, java_session: Any) -> None:
        """Raises BadClientSetting if the first micro-batch would be refused, as far as that is known now."""
        self._sink = _sink_of(parse_options(self._given, is_stream=True))
        checkpoint = next((value for name, value in self._given.items() if name.lower() == CHECKPOINT), None)
        other = query_with_sink(java_session, self._context._jvm, self.name(), checkpoint)
        if other is not None:
            raise BadClientSetting(
                f"transactional.id {self._sink.transactional_id} is in use by query {other}, which runs in this process"
                "\n\nhint: stop that query, or give this one a transactional.id of its own"
            )
        refuse_missing_topic(self._sink.settings)

    def _add_batch(self, java_frame: Any, batch_id: int) -> BatchProgress:
        assert self._sink is not None
        self._session = self._session or _session_of(self._context, java_frame)
        self._sink(_frame(java_frame, self._session), batch_id)
        return self._sink.recent_progress[-1]

    class Java:
        implements = ("fencepost.spark.format.PythonSink",)


def _sink_of(options: FormatOptions) -> ExactlyOnceSink:
    if options.without_effect:
        log.warning("options without effect on this sink: %s", ", ".join(options.without_effect))
    return ExactlyOnceSink(options.settings, **options.answers)


def _session_of(context: Any, java_frame: Any) -> Any:
    from pyspark.sql import SparkSession

    return SparkSession(context, java_frame.sparkSession())


def _frame(java_frame: Any, session: Any) -> Any:
    from pyspark.sql import DataFrame

    return DataFrame(java_frame, session)


def _answer(work: Callable[[], BatchProgress | None]) -> str:
    """Do the work and return its result, or its error, as JSON."""
    try:
        progress = work()
    except QueryStopped:
        return json.dumps({"stopped": True})
    except BadClientSetting as e:
        return json.dumps({"refused": str(e)})
    except EXPECTED as e:
        return json.dumps({"failed": f"{type(e).__name__}: {e}"})
    except Exception as e:
        return json.dumps({"failed": "".join(traceback.format_exception(e)).strip()})
    return json.dumps({"metrics": {} if progress is None else progress.as_json()})
