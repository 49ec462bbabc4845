"""`fencepost demo`: stories about transactions that check themselves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from fencepost.cli.errors import Failure, WrongUse
from fencepost.cli.groups import HelpfulGroup
from fencepost.cli.options import MOST_DAYS_TO_WAIT, Duration
from fencepost.cli.progress import progress_bar, say
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

    The exit code is 0 only if everything was as it should be. Needs `pip install 'fencepost[demo]'`; for refunds
    `pip install 'fencepost[demo,spark-local]'`, and Java.

    \b
    Example:
        fencepost demo refunds
        fencepost demo brew --attempts 20 --commit-prob 0.7
    """


@demo.command()
@click.option(
    "--settlements", metavar="N", type=click.IntRange(100), default=10_000, show_default=True, help="How many."
)
@click.option("--seed", metavar="N", type=int, help="Makes the same settlements again.")
@click.option(
    "--sink",
    type=click.Choice(["fencepost", "spark"]),
    default="fencepost",
    show_default=True,
    help="spark: Spark's own Kafka sink, for comparison.",
)
@click.option("--no-crashes", is_flag=True, help="Kill nothing.")
@click.option(
    "--bootstrap",
    metavar="HOST:PORT",
    help="A Kafka cluster to use; it gets topics of its own. Without it, the demo starts a broker, and kills it too.",
)
@click.option("--master", metavar="URL", help="A Spark cluster to use. Without it, Spark runs in the demo.")
@click.option(
    "--checkpoint",
    metavar="URI",
    help="With --master: a folder that does not exist yet, for the checkpoint, where all machines of the cluster "
    "find it.",
)
@click.option("--conf", "pairs", metavar="NAME=VALUE", multiple=True, help="A setting of Spark's. Repeatable.")
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
    """A Spark pipeline that is killed, and still refunds everybody once

    Settlements arrive in one topic. A Spark job writes a refund and an audit row for each, and moves its
    group's offset, in one Kafka transaction per micro-batch. The driver is killed in the middle of a batch
    and after a commit, the broker in the middle of a batch. Then confluent-kafka reads what is there.

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
        with progress_bar("refunds that a reader has") as (tell, count):
            report, verdict = play_refunds(options, tell, count)
        verdicts.append(verdict)
        return report

    _run(play, as_json, lambda: None if as_json else print(verdicts[0]), extras="demo,spark-local")


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
                return play_order_crash(bootstrap_servers, no_transactions, say)
            tossed = random.randrange(2**32) if seed is None else seed
            return play_brew(bootstrap_servers, attempts, commit_prob, tossed, say)

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

        return play_recovery(say)

    _run(play, as_json)


@demo.command()
@click.option(
    "--role",
    type=click.Choice(["1", "2"]),
    help="Play one of the two, in a terminal of its own; needs --bootstrap. Start 1 first.",
)
@bootstrap_option
@as_json_option
def zombie(role: str | None, bootstrap: str | None, as_json: bool) -> None:
    """Two processes, one transactional id: the first is fenced

    The first process leaves a transaction open and stands still. The second registers the same id and goes on
    with the work. When the first wakes up, its commit is refused, and it says FENCED and ends.

    \b
    Example:
        fencepost demo zombie
        fencepost demo zombie --role 1 --bootstrap localhost:9092
        fencepost demo zombie --role 2 --bootstrap localhost:9092
    """
    if role is not None and bootstrap is None:
        raise WrongUse(
            f"--role {role} needs a cluster that the other role can reach too",
            "start `fencepost broker --memory` in a third terminal, and add --bootstrap localhost:9092",
        )

    def play() -> Report:
        from fencepost.demo.embedded import cluster
        from fencepost.demo.zombie import play_role, play_zombie

        with cluster(bootstrap) as bootstrap_servers:
            if role is not None:
                return play_role(bootstrap_servers, int(role), say)
            return play_zombie(bootstrap_servers, say)

    _run(play, as_json)


@demo.command()
@click.option(
    "--timeout",
    "timeout_ms",
    type=Duration(MOST_DAYS_TO_WAIT),
    metavar="DURATION",
    default="5s",
    show_default=True,
    help="transaction.timeout.ms of the producer that stands still.",
)
@bootstrap_option
@as_json_option
def isolation(timeout_ms: int, bootstrap: str | None, as_json: bool) -> None:
    """An open transaction holds read_committed readers until its timeout

    Shows the high watermark, the last stable offset, and what readers of both isolation levels see, while a
    transaction is open and after it has timed out. An Apache Kafka looks for timeouts every ten seconds.

    \b
    Example:
        fencepost demo isolation
        fencepost demo isolation --timeout 10s --bootstrap localhost:9092
    """
    if timeout_ms < 1000:
        raise WrongUse(f"--timeout {timeout_ms}ms is too short", "the client takes no less than 1s")

    def play() -> Report:
        from fencepost.demo.embedded import cluster
        from fencepost.demo.isolation import SETTINGS, play_isolation

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
    help="What the reader may see.",
)
@click.option(
    "--count", metavar="N", type=click.IntRange(1), default=100, show_default=True, help="Stop after so many records."
)
@click.option(
    "--idle",
    "idle_ms",
    type=Duration(MOST_DAYS_TO_WAIT),
    metavar="DURATION",
    default="3s",
    show_default=True,
    help="Stop if there was none for so long.",
)
@click.option("--bootstrap", metavar="HOST:PORT", help="The Kafka cluster to read from.")
@as_json_option
def read(
    topics: tuple[str, ...], isolation: str, count: int, idle_ms: int, bootstrap: str | None, as_json: bool
) -> None:
    """Read topics as a consumer of one isolation level does

    Prints each record: topic, partition, offset, key and value. Without TOPIC, reads those of the brew demo.

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

        # One after the other, however often it is named.
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
    """Ctrl-C, SIGTERM or a closed terminal end the block once; what is cleaned up then is not disturbed again."""
    import signal

    def stop(*_: object) -> None:
        for each in watched:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # What is ignored already stays so: `nohup` means it.
    watched = [each for each in signals if signal.getsignal(each) is not signal.SIG_IGN]
    before = [(each, signal.signal(each, stop)) for each in watched]
    try:
        yield
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
        raise Failure(str(error), "the demo's own broker did not do as it was told") from None
    write_report(report, as_json)
    conclude()
    if not report.holds:
        sys.stdout.flush()
        raise Failure("not everything was as it should be", "the evidence is above, under each failed check")
