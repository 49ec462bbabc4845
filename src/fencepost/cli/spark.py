"""`fencepost spark-jar`: where the jar of the Spark sink is."""

from __future__ import annotations

import click

from fencepost.cli.errors import Failure


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
