"""Writes the reference pages from the code: settings, APIs, commands, errors, and the deviations from Apache Kafka.

Run it after a change of any of them; a test fails while a page is out of date.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click

from fencepost.broker.api import APIS
from fencepost.broker.config import INERT_TOPIC_SETTINGS, LISTENER_SETTINGS, SETTINGS, TOPIC_SETTINGS
from fencepost.cli import fencepost
from fencepost.cli.options import EXIT_CODES, WHEN_1
from fencepost.client.admin.orders import NodeList
from fencepost.client.admin.users import UserList
from fencepost.client.settings import KNOWN as CLIENT_SETTINGS
from fencepost.diagnose.doctor.report import DoctorReport
from fencepost.diagnose.errors.entry import ErrorEntry
from fencepost.diagnose.errors.librdkafka import LOCAL
from fencepost.diagnose.errors.table import TABLE
from fencepost.diagnose.explain.explanation import Explanation
from fencepost.diagnose.groups import GroupDescription, GroupList
from fencepost.diagnose.hanging import HangingReport, ProducerList
from fencepost.diagnose.history import History
from fencepost.diagnose.lso import LsoReport
from fencepost.diagnose.orders import Ended
from fencepost.diagnose.tail.documents import TailEnd, TailMarker, TailRecord
from fencepost.diagnose.topics import TopicChanges, TopicDescription, TopicList
from fencepost.diagnose.txns import TxnDescription, TxnList
from fencepost.spark.preflight.report import CheckReport
from fencepost.tap.decoding import WireEvent
from fencepost.verify.report.document import VerifyReport

ROOT = Path(__file__).resolve().parent.parent
_DIFFERS = re.compile(r"^( *)# Differs: (.*)\n((?:\1# .*\n)*)", re.MULTILINE)


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "Set them with `--set name=value`, or in a properties file with `--config FILE`. Names and defaults are",
        "those of Apache Kafka; settings that only Fencepost has start with `fencepost.`.",
        "",
        "| setting | values | default | |",
        "|---|---|---|---|",
    ]
    for name, setting in sorted(SETTINGS.items()):
        values = " or ".join(word or "(none)" for word in setting.kind.split("|"))
        default = str(setting.default).lower() if isinstance(setting.default, bool) else setting.default
        lines.append(f"| `{name}` | {values} | {default if default != '' else '(none)'} | {setting.doc} |")
    lines += [
        *("", "## Listeners", ""),
        "`listener.name.NAME.` before the name of a setting, with the name of a listener in lower case, sets it for",
        "that listener only: settings that begin with `ssl.` or `sasl.`, and `connections.max.reauth.ms`. The name of",
        "a SASL mechanism may follow: `listener.name.outside.plain.sasl.jaas.config`.",
        *("", "Only listeners have these settings:"),
        *("", "| listener setting | |", "|---|---|"),
        *(f"| `{name}` | {s.doc} |" for name, s in LISTENER_SETTINGS.items() if name not in SETTINGS),
    ]
    lines += ["", "## Topics", "", "A setting of a topic overrides the setting of the broker.", ""]
    lines += ["| topic setting | falls back to |", "|---|---|"]
    lines += [f"| `{name}` | `{fallback}` |" for name, fallback in sorted(TOPIC_SETTINGS.items())]
    inert = ", ".join(f"`{name}`" for name in sorted(INERT_TOPIC_SETTINGS))
    lines += ["", f"These topic settings are accepted and shown, but have no effect: {inert}.", ""]
    return "\n".join(lines)


def client_settings_page() -> str:
    lines = [
        "# Client settings",
        "",
        "The Spark sink and the tools connect to a cluster with these settings, whose names are those of librdkafka",
        "and of the Java client. An unknown name is an error. [Connecting to a cluster](../guides/connecting.md) has",
        "examples.",
        "",
        "| setting | |",
        "|---|---|",
    ]
    lines += [f"| `{name}` | {doc} |" for name, doc in CLIENT_SETTINGS.items()]
    return "\n".join([*lines, ""])


def apis_page() -> str:
    lines = [
        "# APIs",
        "",
        "The APIs that the broker serves. Each has one file, `src/fencepost/broker/api/kNN_name.py`.",
        "",
        "| key | API | versions | |",
        "|---|---|---|---|",
    ]
    for api in APIS.values():
        doc = (import_module(api.module).__doc__ or "").split("\n")[0]
        about = doc.split(": ", 1)[1] if ": " in doc else doc
        lines.append(f"| {api.key} | {api.name} | {api.first}-{api.last} | {about} |")
    return "\n".join([*lines, ""])


def deviations() -> list[tuple[str, str]]:
    """Every `# Differs:` comment of the source: its file and its text."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for match in _DIFFERS.finditer(path.read_text()):
            more = [line.strip().removeprefix("# ") for line in match[3].splitlines()]
            found.append((str(path.relative_to(ROOT)), " ".join([match[2], *more])))
    return found


def deviations_page() -> str:
    page = (ROOT / "docs/deviations.intro.md").read_text().rstrip()
    lines = [page, "", "## In the code", "", "A comment `# Differs:` marks each of these in the code.", ""]
    lines += ["| file | difference and reason |", "|---|---|"]
    lines += [f"| `{where}` | {text} |" for where, text in deviations()]
    return "\n".join([*lines, ""])


# --- commands ---------------------------------------------------------------------------------------------

EXAMPLES = ROOT / "docs/reference/examples"
# The document that `--json` prints.
DOCUMENTS: dict[str, type[Any]] = {
    "group list": GroupList,
    "group describe": GroupDescription,
    "txn list": TxnList,
    "txn describe": TxnDescription,
    "txn history": History,
    "txn producers": ProducerList,
    "txn lso": LsoReport,
    "txn hanging": HangingReport,
    "txn explain": Explanation,
    "txn fence": Ended,
    "txn abort": Ended,
    "error": ErrorEntry,
    "doctor": DoctorReport,
    "spark check": CheckReport,
    "topic create": TopicChanges,
    "topic list": TopicList,
    "topic describe": TopicDescription,
    "topic delete": TopicChanges,
    "cluster nodes": NodeList,
    "cluster stop-node": NodeList,
    "cluster start-node": NodeList,
    "cluster pause-node": NodeList,
    "cluster resume-node": NodeList,
    "cluster move-leader": NodeList,
    "cluster move-coordinator": NodeList,
    "user list": UserList,
    "verify check": VerifyReport,
    "verify cluster": VerifyReport,
}

# The documents of a command that prints one in each line; `type` tells them apart.
LINES: dict[str, tuple[type[Any], ...]] = {"tail": (TailRecord, TailMarker, TailEnd), "tap": (WireEvent,)}


def commands(group: click.Group = fencepost, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command that is not a group, by its full name, such as `txn lso`."""
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        elif not command.hidden:
            yield " ".join((*path, name)), command


def page_of(name: str) -> str:
    return f"docs/reference/commands/{name.replace(' ', '-')}.md"


def commands_page() -> str:
    lines = [
        "# Commands",
        "",
        "`fencepost COMMAND --help` prints a shorter version of these pages.",
        "",
        "| command | |",
        "|---|---|",
    ]
    for name, command in commands():
        lines.append(f"| [`fencepost {name}`]({Path(page_of(name)).name}) | {_help(command)[0]} |")
    lines += ["", "Data goes to stdout, everything else to stderr.", "", *exit_codes_table()]
    return "\n".join(lines)


def exit_codes_table() -> list[str]:
    """The exit codes, and what the one that differs between commands means for each."""
    return [
        *("| exit code | |", "|---|---|", *(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())),
        *("", "Exit code 1 of each command:", ""),
        *("| command | exit code 1 |", "|---|---|"),
        *(f"| `fencepost {name}` | {meaning} |" for name, meaning in sorted(WHEN_1.items())),
        "",
    ]


def command_page(name: str) -> str:
    command = dict(commands())[name]
    summary, about, examples = _help(command)
    ctx = click.Context(command, info_name=f"fencepost {name}")
    usage = " ".join([f"fencepost {name}", *command.collect_usage_pieces(ctx)])
    lines = [f"# fencepost {name}", "", f"{summary}.", "", *([about, ""] if about else []), "```", usage, "```", ""]
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    if options:
        lines += ["| option | |", "|---|---|", *map(_option_row, options), ""]
    lines += ["## Examples", "", "```sh", *examples, "```", ""]
    example = EXAMPLES / f"{name.replace(' ', '-')}.txt"
    if example.exists():
        lines += ["The output:", "", "```console", example.read_text().rstrip(), "```", ""]
    if name.startswith("txn "):
        lines += ["## Exit codes", "", *exit_codes_table()]
    if name in DOCUMENTS:
        watched = ", once or, with `--watch`, one line each time" if _has_option(command, "--watch") else ""
        lines += ["## JSON", "", f"The document that `--json` prints{watched}.", ""]
        lines += _json_tables(DOCUMENTS[name])
    if name in LINES:
        kinds = "this document" if len(LINES[name]) == 1 else "one of these documents; `type` tells which"
        lines += ["## JSON", "", f"With `--json`, each line is {kinds}.", ""]
        lines += _json_tables(*LINES[name])
    return "\n".join(lines)


def _help(command: click.Command) -> tuple[str, str, list[str]]:
    """The help of a command: its first line, the text after it, and its examples."""
    text, _, examples = cleandoc(command.help or "").replace("\b\n", "").partition("Example:\n")
    summary, _, about = text.strip().partition("\n\n")
    return summary, about.strip(), [line.strip() for line in examples.splitlines() if line.strip()]


def _has_option(command: click.Command, name: str) -> bool:
    return any(name in option.opts for option in command.params)


def _option_row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    value = "" if option.is_flag else f" {option.metavar or option.make_metavar(click.Context(fencepost))}"
    default = f" Default: {option.default}." if option.show_default else ""
    return f"| {names}{value.replace('|', ' or ')} | {option.help}{default} |"


def _json_tables(*documents: type[Any]) -> list[str]:
    """The fields of documents, and of the objects inside them."""
    lines, left, seen = [], list(documents), set()
    while left:
        kind = left.pop(0)
        if kind in seen:
            continue
        seen.add(kind)
        lines += [f"**{kind.__name__}**", "", "| field | type |", "|---|---|"]
        module = vars(import_module(kind.__module__))
        for field in dataclasses.fields(kind):
            text = str(field.type)
            lines.append(f"| `{field.name}` | {_json_type(text)} |")
            left += [module[w] for w in re.findall(r"[A-Z]\w+", text) if dataclasses.is_dataclass(module.get(w))]
        lines.append("")
    return lines


def _json_type(text: str) -> str:
    if " | " in text:
        return " or ".join(_json_type(part) for part in text.split(" | "))
    array = re.fullmatch(r"tuple\[(.+), \.\.\.\]", text)
    if array:
        return f"array of {_json_type(array[1])}"
    names = {"int": "number", "float": "number", "str": "string", "bool": "true or false", "None": "null"}
    names |= {
        "NamedPartition": "{topic, partition}",
        "Who": "string",
        "Then": "string",
        "Effect": "string",
        "Severity": "string",
        "Command": "string",
        "dict[str, Any]": "object",
    }
    return names.get(text, text)


# --- errors -----------------------------------------------------------------------------------------------


def errors_page() -> str:
    lines = [
        "# Errors",
        "",
        "Every error that a transactional producer, or the consumer beside it, can receive. `fencepost error CODE`",
        "prints one of them. *Definite* means that the request had no effect. If an error is not definite, the request",
        "may have taken effect: find out before you send it again.",
        "",
        "| code | name | retriable | definite | in a transaction |",
        "|---|---|---|---|---|",
    ]
    for entry in TABLE.values():
        then = entry.then.value.split(":")[0].split(";")[0]
        definite = {"NONE": "yes", "UNKNOWN": "no", "DONE": "done"}[entry.effect.name]
        retriable = "yes" if entry.retriable else "no"
        lines.append(f"| {entry.code} | [{entry.name}](#{_anchor(entry)}) | {retriable} | {definite} | {then} |")
    for entry in TABLE.values():
        lines += ["", f"## {entry.name} ({entry.code})", "", f"*What happened:* {entry.meaning}", ""]
        lines += [f"*What to do:* {entry.what_to_do}", ""]
        lines.append(f"- caused by: {entry.who.value}")
        lines.append(f"- effect: {entry.effect.value}")
        if entry.apis and entry.apis != (LOCAL,):
            lines.append(f"- returned by: {', '.join(entry.apis)}")
        if entry.java:
            lines.append(f"- Java: `{entry.java}` (`{entry.java_family}`)")
        if entry.librdkafka:
            lines.append(f"- librdkafka: `{entry.librdkafka}`")
    return "\n".join([*lines, ""])


def _anchor(entry: ErrorEntry) -> str:
    return re.sub(r"[^a-z0-9_ -]", "", f"{entry.name} ({entry.code})".lower()).replace(" ", "-")


PAGES: dict[str, Callable[[], str]] = {
    "docs/reference/settings.md": settings_page,
    "docs/reference/client-settings.md": client_settings_page,
    "docs/reference/apis.md": apis_page,
    "docs/reference/errors.md": errors_page,
    "docs/reference/commands/README.md": commands_page,
    **{page_of(name): partial(command_page, name) for name, _ in commands()},
    "docs/deviations.md": deviations_page,
}


def main() -> None:
    for path, render in PAGES.items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(render())
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
