"""Which layer may import which, what each package says of itself, and how long a file may be."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"

MAY_IMPORT: dict[str, set[str]] = {
    "protocol": set(),
    "machines": {"protocol"},
    "broker": {"protocol", "machines", "counting", "spelling"},
    "client": {"protocol", "counting", "spelling"},
    # The broker and the tap share the words for faults.
    "faults": {"protocol", "spelling"},
    "child": set(),
    "commands": {"printable"},
    "counting": set(),
    "interrupts": set(),
    "malloc": set(),
    "open_files": set(),
    "printable": set(),
    "spelling": set(),
    "server": {
        *("protocol", "machines", "broker", "counting", "faults", "malloc", "open_files", "printable", "spelling"),
    },
    "diagnose": {"protocol", "machines", "client", "commands", "counting", "printable", "spelling"},
    # The sink works against any Kafka, so it knows nothing of our broker.
    "spark": {"protocol", "client", "commands", "counting", "malloc", "open_files"},
    "tap": {"protocol", "client", "counting", "faults", "printable"},
    "testing": {"protocol", "child", "client", "server", "broker", "faults", "tap"},
    "demo": {"protocol", "child", "client", "testing", "spark"},
    # It judges any cluster, so it knows nothing of our broker.
    "verify": {"protocol", "child", "client", "counting", "faults", "tap"},
    # The machines are there for their tables, from which diagrams are drawn.
    "web": {"protocol", "machines", "client", "commands", "counting", "diagnose", "demo", "spelling", "tap", "testing"},
    "cli": {
        *("protocol", "child", "client", "commands", "counting", "server", "diagnose", "demo", "faults", "interrupts"),
        *("printable", "spark", "tap", "testing", "verify", "web"),
    },
    # `import fencepost` must stay cheap; `python -m fencepost` is the command line.
    "__init__": set(),
    "__main__": {"cli", "interrupts"},
}

# Rooms of a package that may import only these other rooms of it.
ROOMS: dict[str, set[str]] = {
    "machines.txn": set(),
    "machines.group": {"machines.pattern"},
    "machines.log": set(),
    "machines.partition": {"machines.log"},
    # Handlers call coordinators, and never the other way round.
    "broker.coordinator": {"broker.cluster", "broker.config", "broker.leaders", "broker.topics"},
    # Checkers know of a run only its history, and of a cluster nothing.
    "verify.checkers": {"verify.history"},
    "verify.pipeline": {"verify.history", "verify.checkers", "verify.nemesis"},
    "verify.report": {"verify.history", "verify.checkers"},
}

# Pure code takes the clock and the dice as arguments, and leaves I/O to the shell around it.
PURE = [
    "protocol", "machines", "broker", "counting.py", "spelling.py", "faults", "client/session.py",
    "tap/decoding.py", "tap/frames.py", "tap/rewriting.py", "tap/text.py",
    "verify/history.py", "verify/checkers", "verify/report",
    "verify/nemesis/schedule.py", "verify/workload/plan.py", "verify/workload/producer.py", "verify/pipeline/inputs.py",
]  # fmt: skip
BANNED_IN_PURE = {
    "asyncio", "concurrent", "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "select",
    "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time", "uvloop",
}  # fmt: skip


def imports(source: str, module: str, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (line, absolute name) of every import in `source`, wherever in the file it stands.

    `from a import b` yields `a.b`: b may be a module, and the rules only look at the front of a name.
    """
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{origin}.{alias.name}"


def layer(module: str) -> str:
    """The part of the package that a module belongs to: `fencepost.broker.node` is in `broker`."""
    return [*module.split("."), "__init__"][1]


def forbidden_imports(source: str, module: str, is_package: bool = False) -> list[str]:
    """The imports of `source` that the table does not allow."""
    own = layer(module)
    wrong = []
    for line, name in imports(source, module, is_package):
        if name.split(".")[0] != "fencepost":
            continue
        target = layer(name)
        # `from fencepost import __version__` names no layer: it reads the root package.
        if target in MAY_IMPORT and target not in MAY_IMPORT[own] | {own, "__init__"}:
            wrong.append(f"line {line}: {own} may not import {target} ({name})")
    return wrong


def forbidden_rooms(source: str, module: str, is_package: bool = False) -> list[str]:
    """The imports of `source` that reach into another room of its package, where the rooms' table does not allow it."""
    own = ".".join(module.split(".")[1:3])
    if own not in ROOMS:
        return []
    wrong = []
    for line, name in imports(source, module, is_package):
        room = ".".join(name.split(".")[1:3])
        is_beside = name.startswith(f"fencepost.{layer(module)}.") and (SOURCE / room_path(room)).exists()
        if is_beside and room != own and room not in ROOMS[own]:
            wrong.append(f"line {line}: {own} may not import {room} ({name})")
    return wrong


def room_path(room: str) -> str:
    path = f"fencepost/{room.replace('.', '/')}"
    return path if (SOURCE / path).is_dir() else f"{path}.py"


def impure_imports(source: str, module: str, is_package: bool = False) -> list[str]:
    """The imports of `source` that reach for a clock, chance, files, threads or the network."""
    return [
        f"line {line}: {name} in pure code"
        for line, name in imports(source, module, is_package)
        if name.split(".")[0] in BANNED_IN_PURE
    ]


def module_of(path: Path) -> tuple[str, bool]:
    parts = list(path.relative_to(SOURCE).with_suffix("").parts)
    is_package = parts[-1] == "__init__"
    return ".".join(parts[:-1] if is_package else parts), is_package


ALL_FILES = sorted((SOURCE / "fencepost").rglob("*.py"))
PURE_FILES = [path for path in ALL_FILES if any(path.is_relative_to(SOURCE / "fencepost" / pure) for pure in PURE)]


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE / "fencepost").as_posix()


def wrong_files(paths: Iterable[Path], wrong: Callable[[str, str, bool], list[str]]) -> dict[str, list[str]]:
    """The files in which `wrong` finds something, by their text, module and whether they are a package."""
    found = {name_of(path): wrong(path.read_text(), *module_of(path)) for path in paths}
    return {name: complaints for name, complaints in found.items() if complaints}


def test_every_layer_has_a_row_in_the_table() -> None:
    assert {layer(module_of(path)[0]) for path in ALL_FILES} - MAY_IMPORT.keys() == set(), "decide what it may import"


def test_a_file_imports_only_the_layers_below_it() -> None:
    assert wrong_files(ALL_FILES, forbidden_imports) == {}


def test_a_file_imports_only_the_rooms_that_its_room_may_import() -> None:
    assert wrong_files(ALL_FILES, forbidden_rooms) == {}


def test_every_room_of_the_table_exists() -> None:
    assert [room for room in ROOMS if not (SOURCE / room_path(room)).exists()] == []
    assert [name for name in MAY_IMPORT if not (SOURCE / room_path(name)).exists()] == []


def test_an_import_from_another_room_is_found() -> None:
    source = "from fencepost.machines.partition.producers import Producer"
    assert len(forbidden_rooms(source, "fencepost.machines.log.memory")) == 1
    assert forbidden_rooms(source, "fencepost.machines.partition.partition") == []
    assert len(forbidden_rooms("from fencepost.broker.node import Node", "fencepost.broker.coordinator.txns")) == 1


def test_every_package_says_what_it_holds() -> None:
    packages = [path for path in ALL_FILES if path.name == "__init__.py"]
    assert [name_of(path) for path in packages if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_a_file_has_at_most_500_lines_unless_its_docstring_says_why() -> None:
    texts = {name_of(path): path.read_text() for path in ALL_FILES}
    long = {name: text for name, text in texts.items() if len(text.splitlines()) > 500}
    assert [name for name, text in long.items() if "500 lines" not in (ast.get_docstring(ast.parse(text)) or "")] == []


def test_a_pure_file_has_no_clock_chance_or_io() -> None:
    assert wrong_files(PURE_FILES, impure_imports) == {}


def test_the_table_has_no_cycles() -> None:
    below: set[str] = set()
    while len(below) < len(MAY_IMPORT):
        settled = {name for name, allowed in MAY_IMPORT.items() if allowed <= below}
        assert settled - below, f"a cycle among {sorted(set(MAY_IMPORT) - below)}"
        below |= settled


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("import fencepost.server.shell", "fencepost.broker.node"),
        ("from fencepost.server import shell", "fencepost.broker.node"),
        ("from fencepost import server", "fencepost.broker.node"),
        ("from ..server import shell", "fencepost.broker.node"),
        ("from ... import server", "fencepost.broker.api.k26_end_txn"),
        ("from .. import cli", "fencepost.testing.plugin"),
        ("def later():\n    from fencepost.broker.node import Node", "fencepost.machines.txn.decisions"),
        ("if TYPE_CHECKING:\n    from fencepost.machines.txn.decisions import Txn", "fencepost.protocol.records"),
    ],
)
def test_an_import_from_above_is_found_however_it_is_written(source: str, module: str) -> None:
    assert len(forbidden_imports(source, module)) == 1


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from fencepost.protocol import errors", "fencepost.broker.node"),
        ("from . import partition", "fencepost.machines.txn.decisions"),
        ("from ..machines.txn import Txn", "fencepost.broker.node"),
        ("from fencepost import __version__", "fencepost.protocol.records"),
        ("import struct", "fencepost.protocol.records"),
    ],
)
def test_an_import_from_below_or_beside_is_allowed(source: str, module: str) -> None:
    assert forbidden_imports(source, module) == []


def test_a_relative_import_in_a_package_file_starts_at_the_package_itself() -> None:
    assert forbidden_imports("from .node import Node", "fencepost.broker", is_package=True) == []
    assert len(forbidden_imports("from ..cli import main", "fencepost.broker", is_package=True)) == 1


@pytest.mark.parametrize("source", ["import time", "from os import path", "import os.path as p"])
def test_a_banned_module_is_found_however_it_is_written(source: str) -> None:
    assert len(impure_imports(source, "fencepost.machines.txn.decisions")) == 1
