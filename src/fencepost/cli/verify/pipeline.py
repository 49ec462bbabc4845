"""`fencepost verify pipeline`: disturbs a program that makes outputs of inputs, and counts what came out."""

from __future__ import annotations

import random
import re
import shutil
import signal
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.options import (
    ClusterOptions,
    Command,
    Duration,
    Unanswered,
    as_json_option,
    certificate_options,
    cluster_options,
)
from fencepost.cli.streams import Failure, WrongUse, say
from fencepost.cli.verify.check import html_option, judge_file

if TYPE_CHECKING:
    from fencepost.client.client import KafkaClient
    from fencepost.verify.pipeline.run import PipelineOptions

FAULTS = ("kill", "pause", "cut", "delay", "lose")


def seconds_option(name: str, field: str, default: str, help: str) -> Callable[[Command], Command]:  # noqa: A002
    return click.option(
        name,
        field,
        type=Duration(1, 100),
        default=default,
        show_default=True,
        help=help,
        callback=lambda ctx, param, ms: ms / 1000,
    )


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--input", "source", metavar="TOPIC", required=True, help="The topic that the program reads.")
@click.option(
    "--output", "targets", metavar="TOPIC[,TOPIC]", required=True, help="The topics that the program writes to."
)
@click.option("--group", metavar="GROUP", help="The program's consumer group, to compare its offsets with the outputs.")
@click.option(
    "--seconds", type=click.FloatRange(1, 86_400), default=60, show_default=True, help="From the first output on."
)
@click.option("--seed", type=int, help="Repeats the plan of a run: its inputs and disturbances. Default: a new one.")
@seconds_option("--kill-every", "every_s", "5s", "The program works for at most so long before it is disturbed again.")
@click.option(
    "--faults",
    metavar="LIST",
    default=",".join(FAULTS),
    show_default=True,
    help="kill -9, a pause with a second copy, cut connections, delayed and lost replies; or none.",
)
@click.option("--nemesis", metavar="COMMAND", help="A shell command that takes its turn among the disturbances.")
@click.option(
    "--inputs",
    type=click.Choice(["mixed", "plain", "transactions"]),
    default="mixed",
    show_default=True,
    help="Whether inputs are written in transactions, some of which are aborted.",
)
@click.option("--rate", type=click.FloatRange(0.1, 10_000), default=100, show_default=True, help="Inputs in a second.")
@click.option(
    "--input-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help='The value of an input: its id, or {"id": "fp-3fa9-000123"}. Its key is always the id.',
)
@click.option(
    "--template",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="The value of an input, with {id} and {number} in it.",
)
@click.option(
    "--match",
    metavar="REGEX",
    help="Finds the id of the input, or its number, in the key or value of an output. Default: the id anywhere.",
)
@seconds_option("--settle", "settle_s", "15s", "At the end, wait for outputs until nothing has moved for so long.")
@seconds_option("--first-output", "first_output_s", "60s", "Give up if the program has written nothing by then.")
@seconds_option(
    "--hung-after",
    "hung_after_s",
    "60s",
    "Kill a program that has written nothing for so long. It has to be longer than its start and a rebalance.",
)
@click.option("--history", metavar="FILE", type=click.Path(), help="Keep the history, for `fencepost verify check`.")
@click.option("--log", metavar="FILE", type=click.Path(), help="Keep what the program prints.")
@html_option
@as_json_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@certificate_options
@cluster_options
def pipeline(
    command: tuple[str, ...],
    cluster: ClusterOptions,
    history: str | None,
    log: str | None,
    html: str | None,
    as_json: bool,
    client_tls: ssl.SSLContext | None,
    **given: Any,
) -> None:
    """Disturb a program that makes outputs of inputs, and count what came out

    COMMAND is any program that reads --input and writes to each --output: a service, Kafka Streams, Flink, Spark. It
    connects to the address that replaces {bootstrap} in COMMAND, which $FENCEPOST_BOOTSTRAP has too: a tap in front of
    the cluster. The program's login passes through, and with --certificate the program has to speak TLS. The verifier
    feeds numbered inputs, kills the program and starts it again, pauses it while a second copy runs, cuts its
    connections, and delays and loses replies. Then it waits for the last outputs, stops the program, and reads as a
    read_committed consumer does.

    Each committed input must have exactly one output in each output topic, an aborted input none, and the offsets of
    --group must be those of the inputs that have outputs. Exit codes: 0 this holds, 1 it does not. The topics must
    exist. Ctrl-C stops early, and judges what was seen.

    \b
    Example:
        fencepost verify pipeline --bootstrap localhost:9092 --input orders --output payments,audit --group tills \\
            -- python service.py --brokers {bootstrap}
    """
    from fencepost.tap.proxy import Unreached
    from fencepost.verify.pipeline.program import NotStarted
    from fencepost.verify.pipeline.run import PipelineFailed
    from fencepost.verify.pipeline.stage import play_pipeline

    options = _options(**given)
    folder = Path(tempfile.mkdtemp(prefix="fencepost-verify-"))
    where = Path(history) if history is not None else folder / "history.jsonl"
    log_file = Path(log) if log is not None else folder / "program.log"
    say(f"seed {options.seed}")
    is_played = is_right = False
    try:
        with cluster.connect() as client, _signals_as_interrupts():
            _check_topics(client, (options.input, *options.outputs))
            play_pipeline(client, options, command, where, log_file, say, client_tls)
        is_played = True
        judge_file(str(where), html, as_json)
        is_right = True
    except NotStarted as e:
        raise Failure(str(e), "what follows -- is the command of the program, as in a shell") from None
    except PipelineFailed as e:
        raise Failure(e.problem, e.hint) from None
    except Unreached as e:
        raise Unanswered(str(e), "is --bootstrap right, and is the broker running?") from None
    except OSError as e:
        if is_played:
            raise  # Of stdout.
        raise Failure(f"cannot write {e.filename or where}: {e.strerror}", "--history and --log name files") from None
    finally:
        # What explains anomalies stays: the history, which the message names, and what the program printed.
        if is_right or not is_played:
            shutil.rmtree(folder, ignore_errors=True)


def _options(
    source: str,
    targets: str,
    seed: int | None,
    faults: str,
    nemesis: str | None,
    input_format: str,
    template: str | None,
    match: str | None,
    **given: Any,
) -> PipelineOptions:
    """`given`: what `PipelineOptions` takes as it is."""
    from fencepost.verify.pipeline.inputs import template_of
    from fencepost.verify.pipeline.run import PipelineOptions
    from fencepost.verify.pipeline.stage import new_tag

    outputs = tuple(dict.fromkeys(name.strip() for name in targets.split(",") if name.strip()))
    if not outputs:
        raise WrongUse(f"--output {targets!r} names no topic", "for example --output payments,audit")
    if source in outputs:
        raise WrongUse(f"{source} is the input and an output", "a program that reads its own outputs cannot be judged")
    return PipelineOptions(
        input=source,
        outputs=outputs,
        tag=new_tag(),
        seed=seed if seed is not None else random.randrange(10_000),
        kinds=_kinds(faults, nemesis),
        template=template_of(input_format) if template is None else _template(template),
        match=_checked_pattern(match),
        command=nemesis,
        **given,
    )


def _kinds(faults: str, nemesis: str | None) -> tuple[str, ...]:
    kinds = [word.strip() for word in faults.split(",") if word.strip() not in ("", "none")]
    for word in kinds:
        if word not in FAULTS:
            raise WrongUse(f"--faults: {word!r} is no disturbance", f"known are {', '.join(FAULTS)}; or none")
    return (*kinds, "command") if nemesis is not None else tuple(kinds)


def _template(file: str) -> str:
    try:
        text = Path(file).read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as e:
        raise WrongUse(f"cannot read {file}: {e}", "--template names a text file") from None
    if "{id}" not in text and "{number}" not in text:
        raise WrongUse(f"{file} has neither {{id}} nor {{number}}", "outputs must be told apart by one of them")
    return text


def _checked_pattern(match: str | None) -> str | None:
    try:
        return match if match is None or re.compile(match) else None
    except re.error as e:
        raise WrongUse(
            f"--match {match!r} is no regular expression: {e}", r"for example --match 'order-(\d+)'"
        ) from None


def _check_topics(client: KafkaClient, names: tuple[str, ...]) -> None:
    from fencepost.client.admin.partitions import partitions_of
    from fencepost.client.admin.topics import NO_SUCH_TOPIC
    from fencepost.client.failures import BrokerError

    for name in names:
        try:
            partitions_of(client, [name])
        except BrokerError as e:
            if e.code not in NO_SUCH_TOPIC:
                raise
            raise Failure(str(e), f"create it: `fencepost topic create {name} --partitions 3`") from None


@contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """SIGTERM and SIGHUP end the run as Ctrl-C does, so that the program does not stay behind."""
    before = {}
    for each in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) is not signal.SIG_IGN:
            before[each] = signal.signal(each, signal.default_int_handler)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
