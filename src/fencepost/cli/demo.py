"""`fencepost demo`: stories about transactions that check their own results."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from fencepost.cli.groups import HelpfulGroup
from fencepost.cli.options import MOST_DAYS_TO_WAIT, Duration, as_json_option
from fencepost.cli.output import Block, Paragraph, Table, write
from fencepost.cli.progress import progress_bar
from fencepost.cli.streams import Failure, WrongUse, say

if TYPE_CHECKING:
    from fencepost.demo.report import Report

bootstrap_option = click.option(
    "--bootstrap", metavar="HOST:PORT", help="A Kafka cluster to use. Without it, the demo starts a broker."
)


@click.group(cls=HelpfulGroup)
def demo() -> None:
    """Stories about transactions that check their own results

    The exit code is 0 only if all checks hold. Needs `pip install 'fencepost[demo]'`; for refunds
    `pip install 'fencepost[demo,spark-local]'`, and Java.

    \b
    Example:
        fencepost demo refunds
        fencepost demo brew --attempts 20 --commit-prob 0.7
    """


@demo.command()
@click.option(
    "--settlements",
    metavar="N",
    type=click.IntRange(100),
    default=10_000,
    show_default=True,
    help="The number of settlements.",
)
@click.option("--seed", metavar="N", type=int, help="Makes the same settlements as an earlier run.")
@click.option(
    "--sink",
    type=click.Choice(["fencepost", "spark"]),
    default="fencepost",
    show_default=True,
    help="`spark` is Spark's own Kafka sink, for comparison.",
)
@click.option("--no-crashes", is_flag=True, help="Kill nothing.")
@click.option(
    "--bootstrap",
    metavar="HOST:PORT",
    help="A Kafka cluster to use, with new topics. Without it, the demo starts a broker, and kills the broker too.",
)
@click.option("--master", metavar="URL", help="A Spark cluster to use. Without it, the demo runs Spark itself.")
@click.option(
    "--checkpoint",
    metavar="URI",
    help="With --master: a new folder for the checkpoint, on a file system that all machines of the cluster share.",
)
@click.option("--conf", "pairs", metavar="NAME=VALUE", multiple=True, help="A setting of Spark. Repeatable.")
@as_json_option
def refunds(
    settlements: int,
    seed: int | None,
    sink: str,
    no_crashes: bool,
    bootstrap: str | None,
    master: str | None,
    checkpoint: str | None,
    pairs: tuple[str, ...],
    as_json: bool,
) -> None:
    """A Spark pipeline that is killed and still makes every refund once

    Settlements arrive in one topic. In one Kafka transaction per micro-batch, a Spark job writes a refund and an
    audit row for each settlement and commits the offsets of its group. The demo kills the driver in the middle of a
    micro-batch and after a commit, and the broker in the middle of a micro-batch. Then
    confluent-kafka reads the result.

    \b
    Example:
        fencepost demo refunds
        fencepost demo refunds --sink spark
        fencepost demo refunds --bootstrap localhost:9092 --json
        fencepost demo refunds --bootstrap kafka:9092 --master spark://spark:7077 --checkpoint hdfs:///tmp/refunds
    """
    conf = dict(_name_and_value(pair) for pair in pairs)
    verdicts = []

    def play() -> Report:
        import random

        from fencepost.demo.refunds.pipeline import LOCAL_MASTER
        from fencepost.demo.refunds.story import Options, play_refunds

        options = Options(
            settlements,
            random.randrange(2**32) if seed is None else seed,
            sink,
            bootstrap,
            master or LOCAL_MASTER,
            conf,
            checkpoint,
            not no_crashes,
        )
        with progress_bar("refunds that consumers can read") as (tell, count):
            report, verdict = play_refunds(options, tell, count)
        verdicts.append(verdict)
        return report

    _run(play, as_json, lambda: None if as_json else print(verdicts[0]), extras="demo,spark-local")


@demo.command()
@click.option(
    "--attempts", metavar="N", type=click.IntRange(1), default=20, show_default=True, help="The number of orders."
)
@click.option(
    "--commit-prob",
    metavar="P",
    type=click.FloatRange(0, 1),
    default=0.7,
    show_default=True,
    help="The probability that an order commits.",
)
@click.option("--seed", metavar="N", type=int, help="Makes the same decisions as an earlier run.")
@click.option("--crash", is_flag=True, help="Instead, kill the order service between payment and shipment.")
@click.option("--no-transactions", is_flag=True, help="With --crash: first show the result without transactions.")
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

    Writes each order to three topics in one transaction, which commits or aborts at random. Then counts the records
    that read_committed and read_uncommitted consumers read, and compares them with the end offsets.

    \b
    Example:
        fencepost demo brew --attempts 20 --commit-prob 0.7 --seed 7
        fencepost demo brew --no-transactions --crash
        fencepost demo brew --bootstrap localhost:9092 --json
    """
    if no_transactions and not crash:
        raise WrongUse("--no-transactions goes with --crash", "add --crash: only a crash shows the difference")

    def play() -> Report:
        import random

        from fencepost.demo.brew import play_brew
        from fencepost.demo.order_crash import play_order_crash
        from fencepost.demo.stage import cluster

        with cluster(bootstrap) as bootstrap_servers:
            if crash:
                return play_order_crash(bootstrap_servers, no_transactions, say)
            tossed = random.randrange(2**32) if seed is None else seed
            return play_brew(bootstrap_servers, attempts, commit_prob, tossed, say)

    _run(play, as_json)


@demo.command()
@bootstrap_option
@as_json_option
def recovery(bootstrap: str | None, as_json: bool) -> None:
    """Kill the broker between a decision and its markers

    Starts a broker in a temporary folder, kills it with kill -9 right after it has written the decision to commit,
    shows the data on disk, and starts the broker again. Does the same for an abort, and before any decision.

    \b
    Example:
        fencepost demo recovery
    """
    if bootstrap is not None:
        raise WrongUse(
            f"--bootstrap {bootstrap}: this demo kills its broker",
            "leave out --bootstrap; the demo starts its own broker",
        )

    def play() -> Report:
        from fencepost.demo.recovery import play_recovery

        return play_recovery(say)

    _run(play, as_json)


@demo.command()
@click.option(
    "--role",
    type=click.Choice(["1", "2"]),
    help="Run only one of the two processes, in its own terminal; needs --bootstrap. Start 1 first.",
)
@bootstrap_option
@as_json_option
def zombie(role: str | None, bootstrap: str | None, as_json: bool) -> None:
    """Two processes, one transactional id: the first is fenced

    The first process leaves a transaction open and pauses. The second process registers the same id and continues
    the work. When the first process resumes, the broker refuses its commit; the process prints FENCED and ends.

    \b
    Example:
        fencepost demo zombie
        fencepost demo zombie --role 1 --bootstrap localhost:9092
        fencepost demo zombie --role 2 --bootstrap localhost:9092
    """
    if role is not None and bootstrap is None:
        raise WrongUse(
            f"--role {role} needs a cluster that the other role can reach too",
            "start `fencepost broker --memory` in a third terminal and add --bootstrap localhost:9092",
        )

    ids: list[str] = []

    def play() -> Report:
        from fencepost.demo.stage import cluster
        from fencepost.demo.zombie import play_role, play_zombie

        with cluster(bootstrap) as bootstrap_servers:
            if role is not None:
                report = play_role(bootstrap_servers, int(role), say)
            else:
                report = play_zombie(bootstrap_servers, say)
        ids.append(report.facts["transactional_id"])
        return report

    def conclude() -> None:
        from fencepost.commands import command, for_cluster

        if bootstrap is not None:  # The cluster is still there.
            line = for_cluster(command("txn", "history", about=ids[0]), ("--bootstrap", bootstrap))
            say(f"`{line}` shows what the coordinator recorded of both processes")

    _run(play, as_json, conclude)


@demo.command()
@click.option(
    "--timeout",
    "timeout_ms",
    type=Duration(MOST_DAYS_TO_WAIT),
    default="5s",
    show_default=True,
    help="transaction.timeout.ms of the producer that leaves its transaction open.",
)
@bootstrap_option
@as_json_option
def isolation(timeout_ms: int, bootstrap: str | None, as_json: bool) -> None:
    """An open transaction holds back read_committed readers until its timeout

    Shows the high watermark, the last stable offset, and the records that consumers of both isolation levels read,
    while a transaction is open and after its timeout. Apache Kafka checks timeouts every ten seconds.

    \b
    Example:
        fencepost demo isolation
        fencepost demo isolation --timeout 10s --bootstrap localhost:9092
    """
    if timeout_ms < 1000:
        raise WrongUse(f"--timeout {timeout_ms}ms is too short", "the client takes no less than 1s")

    def play() -> Report:
        from fencepost.demo.isolation import SETTINGS, play_isolation
        from fencepost.demo.stage import cluster

        with cluster(bootstrap, SETTINGS) as bootstrap_servers:
            return play_isolation(bootstrap_servers, timeout_ms, say)

    _run(play, as_json)


@demo.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1)
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="The isolation level of the consumer.",
)
@click.option(
    "--count", metavar="N", type=click.IntRange(1), default=100, show_default=True, help="Stop after this many records."
)
@click.option(
    "--idle",
    "idle_ms",
    type=Duration(MOST_DAYS_TO_WAIT),
    default="3s",
    show_default=True,
    help="Stop when no record has arrived for this long.",
)
@click.option("--bootstrap", metavar="HOST:PORT", help="The Kafka cluster to read from.")
@as_json_option
def read(
    topics: tuple[str, ...], isolation: str, count: int, idle_ms: int, bootstrap: str | None, as_json: bool
) -> None:
    """Read topics with one isolation level

    Prints the topic, partition, offset, key and value of each record. Without TOPIC, reads the topics of `demo brew`.

    \b
    Example:
        fencepost demo brew --bootstrap localhost:9092
        fencepost demo read --bootstrap localhost:9092
        fencepost demo read --isolation read_uncommitted --count 100 --idle 3s --bootstrap localhost:9092 brew.orders.v1
    """
    if bootstrap is None:
        raise WrongUse(
            "no cluster to read from",
            "name one with --bootstrap localhost:9092; `fencepost broker --memory` starts one",
        )

    def play() -> Report:
        from fencepost.demo.read import play_read
        from fencepost.demo.topics import TOPICS

        # Each topic once, even if it is named twice.
        names = tuple(dict.fromkeys(topics or TOPICS))
        tell = say if as_json else lambda line: print(line, flush=True)
        return play_read(bootstrap, names, isolation == "read_committed", count, idle_ms / 1000, tell)

    _run(play, as_json)


def _name_and_value(pair: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    if not equals or not name:
        raise WrongUse(f"--conf {pair} is not NAME=VALUE", "for example --conf spark.executor.memory=2g")
    return name, value


@contextmanager
def stopped_once() -> Iterator[None]:
    """The first Ctrl-C, SIGTERM or closed terminal ends the block; later ones do not disturb the clean-up."""
    import signal

    is_stopped = False

    def stop(*_: object) -> None:
        nonlocal is_stopped
        is_stopped = True
        for each in watched:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # A signal that is ignored already stays ignored, as `nohup` demands.
    watched = [each for each in signals if signal.getsignal(each) is not signal.SIG_IGN]
    before = [(each, signal.signal(each, stop)) for each in watched]
    try:
        yield
    except Exception:
        # confluent-kafka raises SystemError if the signal arrives during one of its callbacks.
        if is_stopped:
            raise KeyboardInterrupt from None
        raise
    finally:
        for each, handler in before:
            signal.signal(each, handler)


def _run(
    play: Callable[[], Report], as_json: bool, conclude: Callable[[], None] = lambda: None, extras: str = "demo"
) -> None:
    """Play a demo and print its report. `extras`: the extras of this package that it needs."""
    try:
        from confluent_kafka import KafkaException
    except ModuleNotFoundError:
        raise Failure("not installed: confluent-kafka", f"pip install 'fencepost[{extras}]'") from None

    from fencepost.demo.report import DemoFailed
    from fencepost.testing import BrokerFailed

    try:
        with stopped_once():
            report = play()
    except DemoFailed as error:
        raise Failure(str(error), error.hint) from None
    except KafkaException as error:
        raise Failure(f"the client gave up: {error.args[0].str()}", "is the broker still running?") from None
    except BrokerFailed as error:
        raise Failure(str(error), "the broker that the demo started has failed") from None
    write_report(report, as_json)
    conclude()
    if not report.holds:
        sys.stdout.flush()
        raise Failure("some checks failed", "the evidence is above, under each failed check")


if TYPE_CHECKING:
    from fencepost.demo.report import Check, Report

CHECK_COLUMNS = ("", "check", "expected", "found")


def write_report(report: Report, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.document(), indent=2))
    else:
        write(report, blocks_of, as_json=False)


def blocks_of(report: Report) -> Iterator[Block]:
    for section in report.sections:
        yield Paragraph(section.title, is_bold=True)
        if section.sentences:
            yield Paragraph("\n".join(section.sentences))
        if section.rows:
            yield Table(section.columns, section.rows, prose=section.columns)
        yield Table(CHECK_COLUMNS, [_check_row(check) for check in section.checks], prose=CHECK_COLUMNS[1:])
        for check in section.checks:
            if not check.holds and check.evidence:
                yield Paragraph("\n".join(f"FAIL {check.claim}: {line}" for line in check.evidence))
    yield Paragraph(_verdict(report), is_bold=True)


def _check_row(check: Check) -> tuple[str, str, str, str]:
    return "ok" if check.holds else "FAIL", check.claim, _value(check.expected), _value(check.found)


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _verdict(report: Report) -> str:
    failed = sum(not check.holds for check in report.checks)
    return f"{failed} of {len(report.checks)} checks failed" if failed else f"all {len(report.checks)} checks hold"
