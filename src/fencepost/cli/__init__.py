"""The command line: `fencepost COMMAND …`. One file or room per group of commands.

Data goes to stdout, everything else to stderr; `options.py` has the exit codes. Commands import the packages that they
need when they are called, so that packages for the demos do not delay the start of a broker.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from fencepost import __version__
from fencepost.cli.broker import broker
from fencepost.cli.cluster import cluster
from fencepost.cli.consumer_groups import group
from fencepost.cli.demo import demo
from fencepost.cli.doctor import doctor
from fencepost.cli.error import error
from fencepost.cli.errors import Failure
from fencepost.cli.exporter import exporter
from fencepost.cli.groups import ReaderGone, RootGroup
from fencepost.cli.salvage import salvage
from fencepost.cli.spark import spark, spark_jar
from fencepost.cli.streams import say, watched_stdout
from fencepost.cli.tail import tail
from fencepost.cli.tap import tap
from fencepost.cli.topic import topic
from fencepost.cli.txn import txn
from fencepost.cli.user import user
from fencepost.cli.verify import verify
from fencepost.cli.web import web


@click.group(cls=RootGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fencepost", message="%(prog)s %(version)s")
def fencepost() -> None:
    """Exactly once, for Kafka, from Python and Spark

    \b
    Example:
        fencepost doctor --bootstrap localhost:9092
        fencepost demo brew
        fencepost broker --data ./brew-data
    """


fencepost.add_command(broker)
fencepost.add_command(cluster)
fencepost.add_command(demo)
fencepost.add_command(txn)
fencepost.add_command(error)
fencepost.add_command(salvage)
fencepost.add_command(group)
fencepost.add_command(topic)
fencepost.add_command(user)
fencepost.add_command(tail)
fencepost.add_command(tap)
fencepost.add_command(verify)
fencepost.add_command(doctor)
fencepost.add_command(exporter)
fencepost.add_command(web)
fencepost.add_command(spark)
fencepost.add_command(spark_jar)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    code = 0
    with watched_stdout() as stdout:
        try:
            code = _run(arguments)
            stdout.flush()
        except OSError as error:
            if error is not stdout.error:
                raise
            return code or _unwritten(error)
    return code


def _unwritten(error: OSError) -> int:
    """The exit code of a command whose output could not be written."""
    if isinstance(error, BrokenPipeError):
        return ReaderGone.exit_code
    say(f"error: cannot write to stdout: {error.strerror}\n\nhint: is it closed, or is its disk full?")
    return Failure.exit_code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = fencepost.main(args=arguments, prog_name="fencepost", standalone_mode=False)
    except ReaderGone as gone:
        return gone.exit_code
    except click.ClickException as error:
        say(f"error: {_message(error)}")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return 130
    return code if isinstance(code, int) else 0


def _message(error: click.ClickException) -> str:
    message = error.format_message()
    if isinstance(error, click.UsageError) and "hint:" not in message:
        path = error.ctx.command_path if error.ctx is not None else "fencepost"
        message += f"\n\nhint: `{path} --help` shows its arguments and an example"
    return message
