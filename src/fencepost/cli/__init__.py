"""The command line: `fencepost COMMAND …`. One file or room per group of commands.

Data goes to stdout, everything else to stderr; `options.py` has the exit codes. A command is imported when it is
called, and with it the packages that it needs, so that those of the demos do not delay the start of a broker.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from fencepost import __version__
from fencepost.cli.groups import CommandsOnDemand, ReaderGone, RootGroup
from fencepost.cli.streams import Failure, say, watched_stdout
from fencepost.interrupts import INTERRUPTED

COMMANDS = CommandsOnDemand(
    {
        "broker": "fencepost.cli.broker:broker",
        "cluster": "fencepost.cli.cluster:cluster",
        "demo": "fencepost.cli.demo:demo",
        "doctor": "fencepost.cli.doctor:doctor",
        "error": "fencepost.cli.error:error",
        "exporter": "fencepost.cli.exporter:exporter",
        "group": "fencepost.cli.consumer_groups:group",
        "salvage": "fencepost.cli.salvage:salvage",
        "spark": "fencepost.cli.spark:spark",
        "spark-jar": "fencepost.cli.spark:spark_jar",
        "tail": "fencepost.cli.tail:tail",
        "tap": "fencepost.cli.tap:tap",
        "topic": "fencepost.cli.topic:topic",
        "txn": "fencepost.cli.txn:txn",
        "user": "fencepost.cli.user:user",
        "verify": "fencepost.cli.verify:verify",
        "web": "fencepost.cli.web:web",
    }
)


@click.group(cls=RootGroup, commands=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fencepost", message="%(prog)s %(version)s")
def fencepost() -> None:
    """Exactly once, for Kafka, from Python and Spark

    \b
    Example:
        fencepost doctor --bootstrap localhost:9092
        fencepost demo brew
        fencepost broker --data ./brew-data
    """


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
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _message(error: click.ClickException) -> str:
    message = error.format_message()
    if isinstance(error, click.UsageError) and "hint:" not in message:
        path = error.ctx.command_path if error.ctx is not None else "fencepost"
        message += f"\n\nhint: `{path} --help` shows its arguments and an example"
    return message
