"""The commands that documents and hints name, as lines that can be pasted into a shell.

A diagnosis does not know how the cluster was named, so its commands lack that. `for_cluster` adds it.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from typing import Any, TypeVar

from fencepost.printable import printable

T = TypeVar("T")


class Command(str):
    """A line such as `fencepost txn explain orders-sink-3`."""

    operand = ""  # Its end, if that begins with ` -- `: options stand before it.


class KafkaTool(Command):
    """A line for one of Kafka's own tools, such as `kafka-configs`."""

    __slots__ = ()


# Kafka's tools do not read this variable, so it is in the line.
EXPORTED = '"$FENCEPOST_BOOTSTRAP"'


def command(*words: str, about: str | None = None) -> Command:
    """`about` is the id that the command is about, which a client chose."""
    line = " ".join(map(quoted, ("fencepost", *words)))
    if about is None or not about.startswith("-"):
        return Command(line if about is None else f"{line} {quoted(about)}")
    operand = f" -- {quoted(about)}"
    found = Command(line + operand)
    found.operand = operand
    return found


def quoted(word: str) -> str:
    """A word for bash, zsh or ksh, in which nothing is invisible."""
    if "\0" in word:
        # No argument of a command has this character. Without it, the command would be about another id.
        return shlex.quote(printable(word))
    if word.isprintable():
        return shlex.quote(word)
    return f"$'{''.join(map(_quoted_char, word))}'"


def _quoted_char(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    # There, \x80 and above would be a byte and no character.
    return f"\\u{ord(char):04x}" if "\x80" <= char <= "\xff" and not char.isprintable() else printable(char)


def alter_config(entity: Sequence[str], setting: str) -> KafkaTool:
    """Change a setting of a topic or of brokers, or the level of a logger, while they run."""
    words = shlex.join((*entity, "--alter", "--add-config", setting))
    return KafkaTool(f"kafka-configs --bootstrap-server {EXPORTED} {words}")


def _of_kafka(line: KafkaTool, options: Sequence[str]) -> KafkaTool:
    pairs = list(zip(options[::2], options[1::2], strict=True))
    given = dict(pairs)
    settings = dict(value.split("=", 1) for name, value in pairs if name == "--set" and "=" in value)
    servers = given.get("--bootstrap", settings.get("bootstrap.servers"))
    found = str(line)
    if servers is not None:
        found = found.replace(EXPORTED, shlex.quote(servers))
    if "--command-config" in given:
        found += f" --command-config {shlex.quote(given['--command-config'])}"
    return KafkaTool(found)


def for_cluster(value: T, options: Sequence[str]) -> T:
    """A document, with these options added to each of its commands."""
    found: Any = value
    if not options:
        return value
    if isinstance(found, KafkaTool):
        found = _of_kafka(found, options)
    elif isinstance(found, Command):
        operand = found.operand
        found = Command(f"{found.removesuffix(operand)} {' '.join(map(quoted, options))}{operand}")
        found.operand = operand
    elif dataclasses.is_dataclass(found) and not isinstance(found, type):
        fields = {f.name: for_cluster(getattr(found, f.name), options) for f in dataclasses.fields(found)}
        found = type(found)(**fields)
    elif type(found) is tuple:
        found = tuple(for_cluster(item, options) for item in found)
    return found  # type: ignore[no-any-return]  # Of the same type as the value.
