"""A job that logs as much as it can: `logging_job.py SETTINGS EVENTS TOKENS`.

SETTINGS are those of the sink as JSON. EVENTS is the folder of Spark's event log. The tokens of the lease service are
written to the file TOKENS, so that a test knows what to look for.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

LOG4J = """
rootLogger.level = debug
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n
logger.spark.name = org.apache.spark
logger.spark.level = debug
logger.fencepost.name = fencepost
logger.fencepost.level = debug
"""
# Settings, and their names in a JAAS configuration.
LOGINS = {
    "PLAIN": {"sasl.username": "username", "sasl.password": "password"},
    "OAUTHBEARER": {"sasl.oauthbearer.client.id": "clientId", "sasl.oauthbearer.client.secret": "clientSecret"},
}


def main(settings: str, events: str, tokens: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    logging.basicConfig(level=logging.DEBUG)
    logging.getLogger("py4j").setLevel(logging.INFO)  # It logs every call between Python and the JVM.
    from pyspark.sql import SparkSession

    from fencepost.spark import ExactlyOnceSink, configure
    from fencepost.spark.lease.client import LeaseAddress
    from fencepost.spark.lease.server import LeaseServer

    opened = LeaseServer.open

    def remember(server: LeaseServer, *args: Any) -> LeaseAddress:
        address = opened(server, *args)
        with Path(tokens).open("a") as file:
            file.write(address.token + "\n")
        return address

    LeaseServer.open = remember  # type: ignore[method-assign,assignment]
    log4j = Path(tokens).with_name("log4j2.properties")
    log4j.write_text(LOG4J)
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"-XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={log4j}")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", Path(events).as_uri())
        .config("spark.eventLog.compress", "false")
    )
    spark = configure(builder).getOrCreate()
    sink = ExactlyOnceSink(json.loads(settings))
    frame = spark.range(0, 40, 1, 2).selectExpr("cast(id AS string) AS value")
    frame.explain(True)
    assert sink.write(frame) == 40
    sink.close()
    given = json.loads(settings)
    if given.pop("fencepost.plane") == "jvm":
        frame.write.format("fencepost").mode("append").options(**{f"kafka.{k}": v for k, v in given.items()}).save()
        names = LOGINS[given["sasl.mechanism"]]
        login = " ".join(f'{ours}="{given.pop(name)}"' for name, ours in names.items())
        given["sasl.jaas.config"] = f"Module required {login};"
        frame.write.format("fencepost").mode("append").options(**{f"kafka.{k}": v for k, v in given.items()}).save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
