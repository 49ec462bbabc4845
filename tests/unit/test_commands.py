"""The commands in documents, as lines for a shell."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from fencepost.commands import alter_config, command, for_cluster
from fencepost.diagnose.explain.findings import Action


def test_words_are_quoted_for_the_shell() -> None:
    assert command("txn", "explain", "it's") == """fencepost txn explain 'it'"'"'s'"""


HOSTILE_IDS = (
    "-9",
    "--yes",
    "a -- b",
    "-- -x",
    "o'\\x1b\x1b[2K",
    "a\n\tb",
    "\x9b\u202e\u200b\U000e0001\xa0",
    "`id`$(id)",
)


@pytest.mark.skipif(shutil.which("bash") is None, reason="the lines are for bash")
@pytest.mark.parametrize("id_", HOSTILE_IDS)
@pytest.mark.parametrize("options", [(), ("--set", "client.id=it's\x1b", "--bootstrap", "b:2")])
def test_a_line_is_visible_and_a_shell_makes_the_same_words_of_it(id_: str, options: tuple[str, ...]) -> None:
    line = for_cluster(command("txn", "explain", about=id_), options)
    assert line.isprintable()
    script = f"fencepost() {{ printf '%s\\0' \"$@\"; }}; {line}"
    env = {"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]}
    words = subprocess.run(["bash", "-c", script], capture_output=True, check=True, env=env).stdout.decode()
    assert words.split("\0")[:-1] == (
        ["txn", "explain", *options, "--", id_] if id_.startswith("-") else ["txn", "explain", id_, *options]
    )


def test_an_id_that_no_argument_can_have_is_not_mistaken_for_another() -> None:
    assert command("txn", "fence", about="orders\0x") == r"fencepost txn fence 'orders\x00x'"


def test_every_command_of_a_document_gets_the_options_of_the_cluster_and_other_texts_do_not() -> None:
    document = (Action(advice="fencepost", command=command("txn", "list")), (command("doctor"), None, 3))
    assert for_cluster(document, ["--bootstrap", "b:2"]) == (
        Action(advice="fencepost", command=command("txn", "list", "--bootstrap", "b:2")),
        (command("doctor", "--bootstrap", "b:2"), None, 3),
    )
    assert for_cluster(document, []) is document


def test_a_line_for_a_tool_of_kafka_names_the_cluster_in_the_words_of_that_tool() -> None:
    line = alter_config(("--entity-type", "brokers", "--entity-default"), "a.b=true")
    words = "--entity-type brokers --entity-default --alter --add-config a.b=true"
    assert line == f'kafka-configs --bootstrap-server "$FENCEPOST_BOOTSTRAP" {words}'
    given = ["--bootstrap", "b:2", "--command-config", "user.properties", "--set", "request.timeout.ms=5"]
    assert for_cluster(line, given) == f"kafka-configs --bootstrap-server b:2 {words} --command-config user.properties"
    by_setting = for_cluster(line, ["--set", "bootstrap.servers=b:3", "--set", "request.timeout.ms=5"])
    assert by_setting == f"kafka-configs --bootstrap-server b:3 {words}"
    # A setting gives way to the option.
    assert for_cluster(line, ["--bootstrap", "b:2", "--set", "bootstrap.servers=b:3"]) == for_cluster(line, given[:2])
