"""`fencepost spark`: checks for pipelines with the Spark sink. `fencepost spark-jar`: where its jar is."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.groups import HelpfulGroup
from fencepost.cli.options import ClusterOptions, Unanswered, as_json_option, cluster_options, with_hint
from fencepost.cli.streams import Failure, WrongUse, say
from fencepost.interrupts import EndsAtOnce

if TYPE_CHECKING:
    from fencepost.cli.output import Block
    from fencepost.spark.preflight.report import CheckReport

INSTALL = "pip install 'fencepost[spark]' beside your PySpark, or 'fencepost[spark-local]'"


@click.command("spark-jar")
def spark_jar() -> None:
    """Print the path of the jar with which the Spark sink writes from Spark's own JVM

    For spark-submit and for settings of a cluster. In a program, `fencepost.spark.configure(builder)` adds it.

    \b
    Example:
        spark-submit --jars $(fencepost spark-jar) job.py
    """
    from fencepost.spark.jvm.jar import jar_path

    try:
        click.echo(jar_path())
    except FileNotFoundError as e:
        what, _, hint = str(e).partition("\n\nhint: ")
        raise Failure(what, hint) from None


@click.group(cls=HelpfulGroup)
def spark() -> None:
    """Check brokers, permissions, limits and ports for the Spark sink

    \b
    Example:
        fencepost spark check --id refunds-1 --topic refunds-emitted --bootstrap localhost:9092
    """


@spark.command()
@click.option(
    "--id",
    "--transactional-id",
    "transactional_id",
    metavar="ID",
    help="The transactional.id of the sink. Also checks who has it now, and what its last transaction was.",
)
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="An output topic. Repeatable.")
@click.option("--group", "group_id", metavar="GROUP", help="The group.id of the sink.")
@click.option(
    "--source-topic", "sources", metavar="TOPIC", multiple=True, help="A topic that the query reads. Repeatable."
)
@click.option("--token", metavar="TOKEN", help="A token of write(token=...), for its permission.")
@click.option("--master", metavar="URL", help="The Spark cluster. Default: that of Spark's own configuration.")
@click.option("--conf", "confs", metavar="NAME=VALUE", multiple=True, help="One setting of Spark. Repeatable.")
@click.option("--no-spark", is_flag=True, help="Check the Kafka cluster only, without starting a Spark session.")
@cluster_options
@as_json_option
def check(
    transactional_id: str | None,
    topics: tuple[str, ...],
    group_id: str | None,
    sources: tuple[str, ...],
    token: str | None,
    master: str | None,
    confs: tuple[str, ...],
    no_spark: bool,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Check brokers, permissions, limits and ports for a pipeline with the Spark sink, before it runs

    Asks the Kafka cluster from here, and starts a Spark session whose executors try to reach the brokers and the lease
    port of the driver. Writes nothing, and does not fence a pipeline that runs. --set and --command-config take the
    settings of the sink. In a session of your own, call fencepost.spark.check(spark, settings).

    \b
    Example:
        fencepost spark check --id refunds-1 --topic refunds-emitted --bootstrap localhost:9092
        fencepost spark check --id refunds-1 --topic refunds-emitted --master spark://spark:7077
    """
    from fencepost.cli.output import write
    from fencepost.client.failures import BadClientSetting

    try:
        from fencepost.spark.preflight.run import check as check_pipeline
        from fencepost.spark.settings import parse_sink_settings
    except ModuleNotFoundError as e:
        raise Failure(f"`fencepost spark check` needs {e.name}, which is not installed", INSTALL) from None
    settings: dict[str, object] = dict(cluster.settings())
    settings |= {"transactional.id": transactional_id} if transactional_id is not None else {}
    settings |= {"group.id": group_id} if group_id is not None else {}
    if not settings.get("transactional.id"):
        raise WrongUse(
            "transactional.id is missing", "give it with --id ID: a name that this pipeline keeps over restarts"
        )
    try:
        parse_sink_settings(settings)  # A start of Spark takes seconds.
    except BadClientSetting as e:
        raise WrongUse(*with_hint(str(e), "the settings are those of the sink")) from None
    # A KeyboardInterrupt would make PySpark remove a folder that its JVM needs to start, and the JVM would stay.
    # If this process just ends, the JVM sees the end of its input and ends too.
    with EndsAtOnce():
        session = None if no_spark else _start_session(master, confs)
        try:
            report = check_pipeline(session, settings, topics=topics, source_topics=sources, token=token)
        finally:
            if session is not None:
                session.stop()
    # Its hints have commands of several lines, so `_report` itself makes its texts printable.
    write(report, lambda _: _report(report), as_json)
    if not report.is_ok:
        if len(report.findings) == 1:
            raise Unanswered("the cluster cannot be reached", "is --bootstrap right, and is the broker running?")
        raise Failure("the pipeline would not run", "each problem above has a hint")
    say("the pipeline finds what it needs")


def _start_session(master: str | None, confs: tuple[str, ...]) -> Any:
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        hint = f"{INSTALL}; --no-spark checks the Kafka cluster only"
        raise Failure("`fencepost spark check` needs pyspark, which is not installed", hint) from None
    from fencepost.spark import configure

    builder = SparkSession.builder.appName("fencepost spark check")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    if master is not None:
        builder = builder.master(master)
    for pair in confs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise WrongUse(f"--conf {pair} is not a setting", "write name=value, as for spark-submit")
        builder = builder.config(name, value)
    at_ctrl_c = signal.getsignal(signal.SIGINT)
    try:
        return configure(builder).getOrCreate()
    except Exception as e:
        raise Failure(f"no Spark session can be started: {e}", "check --master and --conf, and JAVA_HOME") from None
    finally:
        # PySpark's own handler asks the JVM something in the middle of another question, which breaks the connection.
        signal.signal(signal.SIGINT, at_ctrl_c)


def _report(report: CheckReport) -> Iterator[Block]:
    from fencepost.cli.output import Paragraph, Table
    from fencepost.printable import printable, printable_lines

    rows = [(finding.status, *map(printable, (finding.subject, finding.text))) for finding in report.findings]
    yield Table(("STATUS", "SUBJECT", "FOUND"), rows, prose=("SUBJECT", "FOUND"))
    for finding in report.findings:
        if finding.hint is not None:
            yield Paragraph(printable_lines(f"hint ({printable(finding.subject)}): {finding.hint}"))
