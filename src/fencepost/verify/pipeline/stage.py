"""Sets a run up: the tap that the program connects to, the program, and the file of the history."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from fencepost.client.client import KafkaClient
from fencepost.tap.proxy import Proxy
from fencepost.tap.running import TapThread
from fencepost.verify.checkers.pipeline import PIPELINE
from fencepost.verify.history import Event, Header, encode, encode_header
from fencepost.verify.pipeline.program import Program
from fencepost.verify.pipeline.run import PipelineFailed, PipelineOptions, PipelineRun, SeenOutputs

BOOTSTRAP = "FENCEPOST_BOOTSTRAP"


def play_pipeline(
    client: KafkaClient,
    options: PipelineOptions,
    command: Sequence[str],
    history: Path,
    log: Path,
    say: Callable[[str], None],
    client_tls: ssl.SSLContext | None = None,
) -> SeenOutputs:
    """One run, whose history is in the file then. Raises PipelineFailed, NotStarted, ClientError and OSError.

    With `client_tls`, the program has to speak TLS.
    """
    topics = {name: len(client.topic(name, fresh=True).leaders) for name in (options.input, *options.outputs)}
    proxy = Proxy(client.settings, ("127.0.0.1", 0), show=lambda event: None, say=say, client_tls=client_tls)
    with open(history, "w", encoding="utf-8") as file, TapThread(proxy) as tap:
        address = tap.tap.address
        words = [word.replace("{bootstrap}", address) for word in command]
        program = Program(words, {BOOTSTRAP: address}, log)
        file.write(encode_header(Header(options.seed, _what(options, command), topics)))

        def note(event: Event) -> None:
            file.write(encode(event))

        run = PipelineRun(options, client, program, tap, note, say)
        say(f"the program connects to {address}")
        run.play()
    seen = run.seen
    if seen.without_id and not any(counted.total() for counted in seen.by_topic.values()):
        raise PipelineFailed(
            f"{seen.without_id} outputs came, and none of them names an input; the last one is {seen.sample!r}",
            "the id of the input, such as fp-3fa9-000123, must be in the key or value of the output; --match finds it "
            "by a regular expression",
        )
    return seen


def _what(options: PipelineOptions, command: Sequence[str]) -> dict[str, object]:
    return {
        "verify": PIPELINE,
        "command": " ".join(command),
        "input": options.input,
        "outputs": ", ".join(options.outputs),
        **({"group": options.group} if options.group is not None else {}),
        "disturbances": ", ".join([*options.kinds, *([options.command] if options.command is not None else [])]),
    }


def new_tag() -> str:
    """So that a run does not take the outputs of an earlier one for its own."""
    return os.urandom(2).hex()
