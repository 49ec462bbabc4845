"""The documents agree with the code: names, paths, links, settings, commands, generated pages and words."""

from __future__ import annotations

import ast
import builtins
import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from fencepost.broker.api import APIS
from fencepost.broker.config import INERT_TOPIC_SETTINGS, OTHER_UNITS, SETTINGS, TOPIC_SETTINGS, setting_of
from fencepost.broker.topics import SETTINGS_PREFIX
from fencepost.cli import fencepost
from fencepost.client.settings import KNOWN as OUR_CLIENT_SETTINGS
from fencepost.machines.group.classic.group import LEGAL as GROUP_MOVES
from fencepost.machines.txn.states import LEGAL as TXN_MOVES
from fencepost.protocol import errors
from fencepost.server.control import POINTS
from fencepost.spark.settings import SINK_SETTINGS
from fencepost.web.machine import TXN_CAUSES
from scripts import diagrams, reference

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
# Documents in which every name in backticks is looked up.
CHECKED = [
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((DOCS / "concepts").glob("*.md")),
    *sorted((DOCS / "adr").glob("*.md")),
]
# Settings of other clients and of Spark, which no table of ours lists.
CLIENT_SETTINGS = {
    "acks",
    "auto.offset.reset",
    "bootstrap.servers",
    "check.crcs",
    "enable.auto.commit",
    "enable.idempotence",
    "group.id",
    "group.protocol",
    "isolation.level",
    "max.poll.interval.ms",
    "metadata.recovery.strategy",
    "socket.timeout.ms",
    "transaction.timeout.ms",
    "transactional.id",
}
FEATURES = {"transaction.version"}
# Names in backticks that belong to Kafka, Spark, Python or the operating system.
NOT_OURS = {
    "Complete*", "Prepare*", "async", "fdatasync", "fenceProducers", "foreachBatch", "fsync", "java.util.regex",
    "kafka-dump-log", "kafka-features", "kio", "librdkafka", "make", "mypy", "orders-1", "pip", "pwrite",
    "read_committed", "read_uncommitted", "require_stable", "ruff", "uv",
}  # fmt: skip
PLACEHOLDERS = {"api/kNN_name.py", "kNN_name.py"}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --- what there is ------------------------------------------------------------------------------------------------


@cache
def files() -> frozenset[str]:
    """Every file that a document may name, from the root."""
    skipped = {".git", ".venv", ".tools", "__pycache__", ".dev-data", "dist"}
    found = []
    for folder, inside, names in os.walk(ROOT):
        inside[:] = [name for name in inside if name not in skipped]
        found += [relative(Path(folder) / name) for name in names]
    return frozenset(found)


@cache
def folders() -> frozenset[str]:
    return frozenset(str(parent) for file in files() for parent in Path(file).parents)


class SourceClass(NamedTuple):
    name: str
    bases: tuple[str, ...]
    members: frozenset[str]


class SourceFile(NamedTuple):
    """What is left of a file when its syntax tree is dropped: trees of all files would slow down later tests."""

    defined: frozenset[str]
    classes: tuple[SourceClass, ...]


@cache
def sources() -> dict[str, SourceFile]:
    wanted = (ROOT / "src", ROOT / "tests", ROOT / "scripts", ROOT / "benchmarks")
    return {relative(path): source_file(path.read_text()) for folder in wanted for path in folder.rglob("*.py")}


def source_file(text: str) -> SourceFile:
    tree = ast.parse(text)
    return SourceFile(
        frozenset(names_in(tree)),
        tuple(
            SourceClass(
                node.name,
                tuple(base.id for base in node.bases if isinstance(base, ast.Name)),
                frozenset(names_in(node)),
            )
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
        ),
    )


def names_in(tree: ast.AST) -> Iterator[str]:
    """Every name that a piece of source defines: classes, functions, arguments, variables and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


@cache
def classes() -> dict[str, list[SourceClass]]:
    found: dict[str, list[SourceClass]] = {}
    for source in sources().values():
        for each in source.classes:
            found.setdefault(each.name, []).append(each)
    return found


def has_member(class_name: str, member: str) -> bool:
    """Whether a class, or one that it inherits from, has this method, field or attribute."""
    return any(
        member in each.members or any(has_member(base, member) for base in each.bases if base != class_name)
        for each in classes().get(class_name, [])
    )


def matching_files(name: str) -> list[str]:
    """The files that a document can mean by a path, which may leave out its beginning."""
    pattern = re.escape(name).replace(r"\*", "[^/]*")
    return [file for file in files() if re.search(rf"(^|/){pattern}$", file)]


def is_folder(name: str) -> bool:
    return any(f"/{folder}".endswith("/" + name.strip("/")) for folder in folders())


@cache
def make_targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


# --- names in backticks -------------------------------------------------------------------------------------------


def is_setting(text: str) -> bool:
    name = text.partition("=")[0]
    known = {*SETTINGS, *TOPIC_SETTINGS, *INERT_TOPIC_SETTINGS, *SINK_SETTINGS, *OUR_CLIENT_SETTINGS}
    return name in known or setting_of(name) is not None or name in CLIENT_SETTINGS or name in FEATURES


def is_kafkas(word: str) -> bool:
    """The name of an API, an error, a state or a topic of Kafka's."""
    states = {diagrams.kafka_name(state) for moves in (TXN_MOVES, GROUP_MOVES) for state in moves}
    apis = {api.name for api in APIS.values()}
    return word in states | apis or word in vars(errors) or word in {"__transaction_state", "__consumer_offsets"}


def problem_of(span: str) -> str | None:
    """Why a span in backticks names nothing that exists; None if it does."""
    if span in NOT_OURS or span in PLACEHOLDERS or is_setting(span) or is_kafkas(span) or span in POINTS:
        return None
    if span.startswith(("make ", "fencepost ")):
        return problem_of_command(span)
    if re.fullmatch(r"[a-z]+(\.[a-z]+)+=\S*", span):
        return f"{span}: no such setting"
    if span.startswith("--"):
        return None if span.split()[0] in options() else f"{span}: no command has this option"
    if match := re.fullmatch(r"([\w./-]+\.py): (\w+)(?:\.(\w+))?(?:\(.*\))?", span):
        return problem_of_name_in_file(*match.groups())
    if re.fullmatch(r"[\w./*{},-]+\.(py|pyi|txt|md|toml|yml|lock|json)", span):
        return None if matching_files(span) else f"{span}: no such file"
    if re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?", span) and "/" in span:
        return None if is_folder(span) or matching_files(span) else f"{span}: no such folder"
    if match := re.fullmatch(r"([A-Z]\w+)\.(\w+)(?:\(.*\))?", span):
        return None if has_member(*match.groups()) else f"{span}: {match[1]} has no {match[2]}"
    if match := re.fullmatch(r"([a-z_][\w.]*)\.(\w+)(?:\(.*\))?", span):
        return problem_of_dotted(*match.groups())
    if match := re.fullmatch(r"(\w+)(?:\(.*\))?", span):
        known = any(match[1] in source.defined for source in sources().values())
        known = known or hasattr(builtins, match[1]) or match[1] in sys.stdlib_module_names
        is_module = any(Path(file).stem == match[1] for file in sources()) or is_folder(match[1])
        return None if known or is_module or match[1].isdigit() else f"{span}: nothing has this name"
    return None  # A line of code, a command of another program, a value.


def problem_of_name_in_file(path: str, name: str, member: str | None) -> str | None:
    candidates = matching_files(path)
    if not candidates:
        return f"{path}: no such file"
    if not any(name in sources()[file].defined for file in candidates):
        return f"{path} defines no {name}"
    return None if member is None or has_member(name, member) else f"{path}: {name} has no {member}"


def problem_of_dotted(first: str, last: str) -> str | None:
    """`cluster.leader_of`: a name in a module, or a member of something that has the module's name; or a package."""
    if is_folder(f"{first}.{last}".replace(".", "/")):
        return None
    stem = first.rpartition(".")[2]
    modules = [file for file in sources() if Path(file).stem == stem or Path(file).parent.name == stem]
    if any(
        last in sources()[file].defined or Path(file).stem == last or Path(file).parent.name == last for file in modules
    ):
        return None
    return f"{first}.{last}: no module {stem} has {last}"


@cache
def options() -> frozenset[str]:
    return frozenset(name for _, command in reference.commands() for option in command.params for name in option.opts)


def problem_of_command(line: str) -> str | None:
    program, *words = line.split()
    if program == "make":
        return None if words[0] in make_targets() else f"{line}: no such target"
    command: click.Command = fencepost
    while words and isinstance(command, click.Group) and words[0] != "--version":
        found = command.commands.get(words.pop(0))
        if found is None:
            return f"{line}: no such command"
        command = found
    known = {name for option in command.params for name in option.opts} | {"--help", "--version"}
    wrong = [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
    return f"{line}: no option {wrong[0]}" if wrong else None


def without_blocks(text: str) -> str:
    """A document without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def problems_in(text: str) -> list[str]:
    """What a document names and is not there: in backticks, and files and folders in its plain fenced blocks."""
    spans = set(re.findall(r"`([^`\n]+)`", without_blocks(text)))
    files_named = set(re.findall(r"(?<![\w/*])(?:[a-z_]+/)*\w+\.(?:py|java)\b", text)) - PLACEHOLDERS
    blocks = "\n".join(re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    folders_named = set(re.findall(r"(?<![\w./*])(?:[a-z_]+/)+(?=\s|$)", blocks))
    problems = [problem_of(span.strip()) for span in spans]
    problems += [None if is_folder(name) else f"{name}: no such folder" for name in folders_named]
    problems += [None if matching_files(name) else f"{name}: no such file" for name in files_named]
    return sorted({problem for problem in problems if problem})


def defined_below(path: str) -> set[str]:
    """The names that the files at or below a path define."""
    wanted = path.strip("/")
    return {name for file, source in sources().items() if f"/{wanted}/" in f"/{file}/" for name in source.defined}


@pytest.mark.parametrize("document", CHECKED, ids=relative)
def test_a_name_is_in_the_file_or_folder_where_a_document_places_it(document: Path) -> None:
    placed = re.findall(r"`(\w+)` in `([\w/.]+)`", without_blocks(document.read_text()))
    assert [f"{name} in {path}" for name, path in placed if name not in defined_below(path)] == []


@pytest.mark.parametrize("document", CHECKED, ids=relative)
def test_every_name_in_backticks_exists(document: Path) -> None:
    assert problems_in(document.read_text()) == []


@pytest.mark.parametrize(
    "ghost",
    [
        "`TxnShard.replay`",
        "`machines/txn.py`",
        "`machines/txn/decisions.py: decide_nothing`",
        "`cluster.no_such_thing`",
        "`decide_nothing`",
        "`fencepost.flush.on.tuesdays=true`",
        "`make supper`",
        "`fencepost txn dance`",
        "`fencepost txn list --no-such-option`",
        "`src/fencepost/nowhere/`",
        "```\nsrc/\n  nowhere.py  does nothing\n```",
        "```\njava/\n  Nowhere.java  does nothing\n```",
        "```\nsrc/fencepost/\n  nowhere/  pages\n```",
    ],
)
def test_a_ghost_is_found(ghost: str) -> None:
    assert problems_in(f"See {ghost}." if ghost[1] != "`" else ghost) != []


def test_names_of_every_form_are_recognised() -> None:
    text = (
        "`Txn`, `Partition.append`, `machines/partition/partition.py: append`, `cluster.leader_of`, `tests/unit`, "
        "`make test`, `fencepost txn lso --max-age 60s`, `fencepost.flush.on.commit=true`, `PrepareCommit`, `EndTxn`"
    )
    assert problems_in(text) == []


# --- links and the index ------------------------------------------------------------------------------------------


def anchors_of(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_blocks(document.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", re.sub(r"[`*]", "", heading).lower()).replace(" ", "-") for heading in headings}


def links_of(document: Path) -> list[str]:
    return re.findall(r"\]\((?!https?:)([^)\s]+)\)", without_blocks(document.read_text()))


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_link_leads_somewhere(document: Path) -> None:
    broken = []
    for link in links_of(document):
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    assert broken == []


def test_the_index_names_every_document() -> None:
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in links_of(DOCS / "README.md")}
    # The commands have an index of their own, and the introduction of the deviations is part of that page.
    elsewhere = {DOCS / "README.md", DOCS / "deviations.intro.md", *(DOCS / "reference/commands").glob("*-*.md")}
    elsewhere |= {page for page in (DOCS / "reference/commands").glob("*.md") if page.name != "README.md"}
    missing = [relative(page) for page in DOCS.rglob("*.md") if page not in elsewhere and page not in linked]
    assert missing == []


def test_every_test_that_is_named_as_evidence_exists() -> None:
    documents = [DOCS / "reliability.md", *(DOCS / "internals").glob("*.md")]
    named = {name for document in documents for name in re.findall(r"\btest_\w+", document.read_text())}
    there = {Path(file).stem for file in sources()}.union(*(source.defined for source in sources().values()))
    assert sorted(named - there) == []


# --- settings and commands ----------------------------------------------------------------------------------------


def guides() -> list[Path]:
    """The guides. Those about the Spark sink have tests of their own for its settings."""
    about_sink = ("spark.md", "spark-deployment.md")
    return [*sorted(p for p in (DOCS / "guides").glob("*.md") if p.name not in about_sink), DOCS / "clients.md"]


@pytest.mark.parametrize("guide", guides(), ids=relative)
def test_every_setting_that_a_guide_names_exists(guide: Path) -> None:
    spans = re.findall(r"`([^`\n]+)`", without_blocks(guide.read_text()))
    named = [span for span in spans if re.fullmatch(r"[a-z]+(\.[a-z]+){2,}|[a-z]+(\.[a-z]+)+=.*", span)]
    assert [span for span in named if not is_setting(span) and span not in POINTS] == []


def is_read(name: str) -> bool:
    """Whether the broker reads a setting: by its name, as the default of a topic's setting, or through another unit."""
    others = [own for own, fallback in TOPIC_SETTINGS.items() if fallback == name and own != name]
    others += [base for base, units in OTHER_UNITS.items() for unit, _ in units if unit == name]
    # The settings of the internal topics are read with the topic's prefix.
    rests = [name.removeprefix(prefix) for prefix in SETTINGS_PREFIX.values() if name.startswith(prefix)]
    wanted = [f'"{name}"', *(f"{{prefix}}{rest}" for rest in rests)]
    return any(text in broker_source() for text in wanted) or any(is_read(other) for other in others)


@cache
def broker_source() -> str:
    """The source of the broker, without the table of its settings."""
    folders = (ROOT / "src/fencepost/broker", ROOT / "src/fencepost/server")
    paths = [path for folder in folders for path in folder.rglob("*.py") if path.name != "config.py"]
    return "\n".join(path.read_text() for path in paths)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_read_or_says_that_it_has_no_effect(name: str) -> None:
    assert is_read(name) != ("without effect" in SETTINGS[name].doc)


def command_lines(text: str) -> Iterator[str]:
    """Every `fencepost …` and `make …` in the prose, and in blocks of shell."""
    yield from re.findall(r"`((?:fencepost|make) [a-z][^`\n]*)`", without_blocks(text))
    for block in re.findall(r"^```(?:sh|console)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if match := re.match(r"(?:\$ )?((?:fencepost|make) [a-z].*?)(?:\s+#.*)?$", line):
                yield match[1]


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_command_that_a_document_names_exists(document: Path) -> None:
    lines = command_lines(document.read_text())
    assert [problem for line in lines if (problem := problem_of_command(line))] == []


def test_the_readme_names_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make run" in readme
    assert "make test" in readme


def test_the_workflow_runs_make_test_on_every_supported_python() -> None:
    workflow = (ROOT / ".github/workflows/test.yml").read_text()
    supported = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert "run: make test\n" in workflow
    assert re.findall(r'"(3\.\d+)"', workflow) == supported


# --- generated pages ----------------------------------------------------------------------------------------------


REFERENCE_PAGES: Mapping[str, Any] = reference.PAGES


@pytest.mark.parametrize("page", REFERENCE_PAGES)
def test_a_reference_page_is_what_the_code_says(page: str) -> None:
    assert (ROOT / page).read_text() == REFERENCE_PAGES[page](), "run: .venv/bin/python -m scripts.reference"


def test_every_difference_from_kafka_is_a_comment_which_the_list_is_made_from() -> None:
    lines = [(path, line) for path in (ROOT / "src").rglob("*.py") for line in path.read_text().splitlines()]
    wrong = [f"{relative(path)}: {line}" for path, line in lines if "Differs:" in line and "# Differs: " not in line]
    assert wrong == []
    assert len(reference.deviations()) == sum("Differs:" in line for _, line in lines)


@pytest.mark.parametrize("page", diagrams.pages(), ids=relative)
def test_the_generated_blocks_of_a_page_are_up_to_date(page: Path) -> None:
    text = page.read_text()
    assert text == diagrams.refreshed(text), "run: .venv/bin/python -m scripts.diagrams"


def drawn_moves(page: str) -> set[tuple[str, str]]:
    """The arrows of the state diagram in a page, without the one that begins it."""
    [diagram] = re.findall(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", (DOCS / page).read_text(), re.M | re.S)
    return {(a, b) for a, b in re.findall(r"^ *(\w+) --> (\w+)", diagram, re.MULTILINE)}


@pytest.mark.parametrize(
    ("page", "moves"),
    [("concepts/transactions.md", TXN_MOVES), ("concepts/groups.md", GROUP_MOVES)],
    ids=["transactions", "classic groups"],
)
def test_the_drawn_state_diagram_is_the_table(page: str, moves: object) -> None:
    assert isinstance(moves, dict)
    table = {(diagrams.kafka_name(a), diagrams.kafka_name(b)) for a, allowed in moves.items() for b in allowed}
    assert drawn_moves(page) == table


@pytest.mark.parametrize(("causes", "moves"), [(TXN_CAUSES, TXN_MOVES), (diagrams.GROUP_CAUSES, GROUP_MOVES)])
def test_every_cause_in_a_state_diagram_belongs_to_a_legal_move(
    causes: dict[tuple[str, str], str], moves: dict[object, set[object]]
) -> None:
    table = {(diagrams.kafka_name(a), diagrams.kafka_name(b)) for a, allowed in moves.items() for b in allowed}  # type: ignore[arg-type]
    assert set(causes) <= table


def test_a_commit_is_synced_in_the_order_that_the_documents_describe() -> None:
    events = diagrams.watch_commit(diagrams.DISK)
    state = "__transaction_state-0"
    markers = [("orders-0", "COMMIT marker"), ("payments-0", "COMMIT marker")]
    synced = [("orders-0", "sync"), ("payments-0", "sync")]
    decision = [(state, "PrepareCommit"), (state, "sync")]
    assert events[6:] == [*synced, *decision, *markers, *synced, (state, "CompleteCommit"), ("reply", "EndTxn")]


def test_without_the_setting_a_commit_writes_the_same_and_syncs_nothing() -> None:
    with_disk, without = diagrams.watch_commit(diagrams.DISK), diagrams.watch_commit(diagrams.NO_DISK)
    assert [event for event in with_disk if event[1] != "sync"] == without


# --- one word for one thing ---------------------------------------------------------------------------------------

# Forbidden words, with the word of the glossary.
SYNONYMS = {
    r"high.?water[- ]mark|high-watermark": "high watermark",
    r"\btransaction ids?\b|\btxn ids?\b": "transactional id",
    r"(?-i:\b[Mm]icro ?batch)": "micro-batch",
    r"\bcontrol messages?\b": "marker",
    r"\bstable offset limit\b": "last stable offset",
    r"\bpower[- ]cut": "power loss",
}


@pytest.mark.parametrize("pattern", SYNONYMS)
def test_a_thing_has_one_name(pattern: str) -> None:
    texts = [*DOCUMENTS, *(ROOT / "src").rglob("*.py")]
    found = [
        f"{relative(path)}: {match[0]} (say: {SYNONYMS[pattern]})"
        for path in texts
        for match in re.finditer(pattern, path.read_text(), re.IGNORECASE)
        if path.name != "glossary.md"
    ]
    assert found == []
