"""How a Spark session gets the jar, and is connected with this process for `format("fencepost")`.

    from fencepost.spark import configure
    spark = configure(SparkSession.builder).getOrCreate()

Spark loads the jar when it starts. If a platform starts the session, give the platform the jar (`spark-submit --jars
$(fencepost spark-jar)`), and call `configure(spark)` to connect this process.
"""

from __future__ import annotations

import uuid
from typing import Any

from fencepost.spark.checkpoint.files import has_gateway
from fencepost.spark.failures import SinkError
from fencepost.spark.jvm.jar import jar_path, why_no_jar

JARS = "spark.jars"
# The name of this process for the JVM, which may serve several.
DRIVER = "spark.fencepost.driver"
# Spark shows the options of a plain write in its plans, without values that look secret to it. A private key does not.
REDACTED_OPTIONS = "spark.sql.redaction.options.regex"
SECRET_OPTIONS = r"(?i)private key|key\.pem|keystore\.key|oauthbearer\.config"
SPARKS_DEFAULT = "(?i)url"
_name = uuid.uuid4().hex


def configure(builder_or_session: Any) -> Any:
    """Prepare a SparkSession builder, or a session that has the jar. Returns the same object.

    A builder gets the jar next to the jars that it has; its `getOrCreate` connects the session that it creates.
    """
    if hasattr(builder_or_session, "getOrCreate"):
        return _configure_builder(builder_or_session)
    session = builder_or_session
    if not has_gateway(session):
        raise SinkError(
            'format("fencepost") is not available with Spark Connect, whose sessions have no Java gateway\n\nhint: use '
            "foreachBatch(ExactlyOnceSink(...))"
        )
    if problem := why_no_jar(session):
        raise SinkError(problem)
    _connect(session)
    return session


def _configure_builder(builder: Any) -> Any:
    jar = str(jar_path())
    # PySpark's builder has no method that returns the options set so far.
    jars = [given for given in str(getattr(builder, "_options", {}).get(JARS, "")).split(",") if given]
    create = builder.getOrCreate

    def create_and_connect() -> Any:
        session = create()
        # A session that ran before may be without the jar. The sink works there too, but not the format.
        if has_gateway(session) and why_no_jar(session) is None:
            _connect(session)
        return session

    builder.getOrCreate = create_and_connect
    redacted = _with_secrets(str(getattr(builder, "_options", {}).get(REDACTED_OPTIONS, SPARKS_DEFAULT)))
    builder = builder.config(JARS, ",".join([*jars, *([jar] if jar not in jars else [])]))
    return builder.config(REDACTED_OPTIONS, redacted).config(DRIVER, _name)


def _with_secrets(pattern: str) -> str:
    return pattern if SECRET_OPTIONS in pattern else f"(?:{pattern})|{SECRET_OPTIONS}"


def _connect(session: Any) -> None:
    from pyspark import java_gateway

    from fencepost.spark.format.python_side import PythonSide

    context = session.sparkContext
    java_gateway.ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
    context._jvm.fencepost.spark.format.PythonSides.connect(_name, PythonSide(context))
    session.conf.set(REDACTED_OPTIONS, _with_secrets(session.conf.get(REDACTED_OPTIONS, SPARKS_DEFAULT)))
    session.conf.set(DRIVER, _name)
