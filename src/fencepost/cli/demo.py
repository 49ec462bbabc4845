"""`fencepost demo`: stories about transactions that check themselves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from fencepost.cli.errors import Failure, WrongUse
from fencepost.cli.groups import HelpfulGroup
from fencepost.cli.report import write_report

if TYPE_CHECKING:
    from fencepost.demo.report import Report

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
bootstrap_option = click.option(
    "--bootstrap", metavar="HOST:PORT", help="A Kafka cluster to use. Without it, the demo starts a broker."
)


@click.group(cls=HelpfulGroup)
def demo() -> None:
    """Stories about transactions that check themselves

    The exit code is 0 only if everything was as it should be.

    \b
    Example:
        fencepost demo brew --attempts 20 --commit-prob 0.7
    """


@demo.command()
@click.option("--attempts", metavar="N", type=click.IntRange(1), default=20, show_default=True, help="Orders.")
@click.option(
    "--commit-prob",
    metavar="P",
    type=click.FloatRange(0, 1),
    default=0.7,
    show_default=True,
    help="The share of orders that the coin lets through.",
)
@click.option("--seed", metavar="N", type=int, help="Tosses the same coins again.")
@click.option("--crash", is_flag=True, help="Kill the order service between payment and shipment instead.")
@click.option("--no-transactions", is_flag=True, help="With --crash: first show it without transactions.")
@bootstrap_option
@as_json_option
def brew(
    attempts: int,
    commit_prob: float,
    seed: int | None,
    crash: bool,
    no_transactions: bool,
    bootstrap: str | None,
    as_json: bool,
) -> None:
    """An order, a payment and a shipment: all of them or none

    Writes each order to three topics in one transaction, and a coin decides whether it commits. Then counts
    what read_committed sees, what read_uncommitted sees, and how far the end offsets moved.

    \b
    Example:
        fencepost demo brew --attempts 20 --commit-prob 0.7 --seed 7
        fencepost demo brew --no-transactions --crash
        fencepost demo brew --bootstrap localhost:9092 --json
    """
    if no_transactions and not crash:
        raise WrongUse("--no-transactions goes with --crash", "add --crash: without one, nothing shows the difference")

    def play() -> Report:
        import random

        from fencepost.demo.brew import play_brew
        from fencepost.demo.embedded import cluster
        from fencepost.demo.order_crash import play_order_crash

        with cluster(bootstrap) as bootstrap_servers:
            if crash:
                return play_order_crash(bootstrap_servers, no_transactions, _progress)
            tossed = random.randrange(2**32) if seed is None else seed
            return play_brew(bootstrap_servers, attempts, commit_prob, tossed, _progress)

    _run(play, as_json)


@demo.command()
@bootstrap_option
@as_json_option
def recovery(bootstrap: str | None, as_json: bool) -> None:
    """Kill the broker between a decision and its markers

    Starts a broker in a temporary folder, kills it with kill -9 right after it wrote the decision to commit
    (then: to abort; then: before any decision), shows what is on disk, and starts it again.

    \b
    Example:
        fencepost demo recovery
    """
    if bootstrap is not None:
        raise WrongUse(
            f"--bootstrap {bootstrap}: this demo kills its broker",
            "leave --bootstrap out; the demo starts a broker of its own",
        )

    def play() -> Report:
        from fencepost.demo.recovery import play_recovery

        return play_recovery(_progress)

    _run(play, as_json)


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _run(play: Callable[[], Report], as_json: bool) -> None:
    from confluent_kafka import KafkaException

    from fencepost.demo.report import DemoFailed
    from fencepost.testing import BrokerFailed

    try:
        report = play()
    except DemoFailed as error:
        raise Failure(str(error), error.hint) from None
    except KafkaException as error:
        raise Failure(f"the client gave up: {error.args[0].str()}", "is the broker still running?") from None
    except BrokerFailed as error:
        raise Failure(str(error), "the demo's own broker did not do as it was told") from None
    write_report(report, as_json)
    if not report.holds:
        sys.stdout.flush()
        raise Failure("not everything was as it should be", "the evidence is above, under each failed check")
