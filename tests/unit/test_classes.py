"""A class with very many methods mostly holds two ideas. One that holds only one idea says so in its docstring.

The methods that a class inherits count too, if it inherits them from a class of this project.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

PROJECT = Path(__file__).resolve().parents[2]
MOST_METHODS = 25
REASON = f"More than {MOST_METHODS} methods:"
# Where the modules of a package are.
FOLDERS = {"fencepost": PROJECT / "src", "tests": PROJECT}


class SourceClass(NamedTuple):
    """What is left of a class when its syntax tree is dropped: trees of all files would slow down later tests."""

    name: str
    line: int
    bases: tuple[str, ...]
    methods: frozenset[str]
    has_reason: bool


class SourceImport(NamedTuple):
    module: str
    names: dict[str, str]  # By the names that the file uses.


Place = tuple[SourceClass, Path]


@cache
def classes_and_imports(path: Path) -> list[SourceClass | SourceImport]:
    found: list[SourceClass | SourceImport] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            bases = tuple(base.id for base in node.bases if isinstance(base, ast.Name))
            methods = (part.name for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef))
            has_reason = REASON in (ast.get_docstring(node) or "")
            found.append(SourceClass(node.name, node.lineno, bases, frozenset(methods), has_reason))
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(SourceImport(node.module, {alias.asname or alias.name: alias.name for alias in node.names}))
    return found


def file_of(module: str) -> Path | None:
    """The file of a module of this project; None for others."""
    package = module.partition(".")[0]
    if package not in FOLDERS:
        return None
    path = FOLDERS[package].joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


def find_class(name: str, path: Path) -> Place | None:
    """The class that has this name in a file, which may import it; None if it is not of this project."""
    for each in classes_and_imports(path):
        if isinstance(each, SourceClass):
            if each.name == name:
                return each, path
        elif name in each.names:
            file = file_of(each.module)
            if file is not None:
                return find_class(each.names[name], file)
    return None


def with_bases(each: SourceClass, path: Path) -> Iterator[SourceClass]:
    """The class, and all classes of this project that it inherits from."""
    yield each
    for base in each.bases:
        found = find_class(base, path)
        if found is not None:
            yield from with_bases(*found)


def wrong_classes(path: Path) -> Iterator[str]:
    """The classes with too many methods and no reason for it, and those with a reason that they do not need."""
    for each in classes_and_imports(path):
        if isinstance(each, SourceClass):
            family = list(with_bases(each, path))
            count = len(frozenset[str]().union(*(one.methods for one in family)))
            if count > MOST_METHODS and not any(one.has_reason for one in family):
                yield f"line {each.line}: {each.name} has {count} methods"
            if count <= MOST_METHODS and each.has_reason:
                yield f"line {each.line}: {each.name} gives a reason for its {count} methods, and needs none"


FILES = [*sorted((PROJECT / "src").rglob("*.py")), *sorted((PROJECT / "tests").rglob("*.py"))]


def test_a_class_has_at_most_25_methods_or_says_why() -> None:
    hint = f"split it where there are two ideas, or give the reason in its docstring, after `{REASON}`"
    wrong = [f"{path.relative_to(PROJECT)}: {each}" for path in FILES for each in wrong_classes(path)]
    assert wrong == [], f"hint: {hint}"


def a_class(head: str, methods: range, docstring: str = "") -> str:
    return "\n".join([head, f'    """{docstring}"""', *(f"    def method_{n}(self): ..." for n in methods), ""])


def wrong_in(tmp_path: Path, *classes: str) -> list[str]:
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.py"
    path.write_text("".join(classes))
    return list(wrong_classes(path))


def test_a_class_with_too_many_methods_is_found(tmp_path: Path) -> None:
    many = range(MOST_METHODS + 1)
    reason = f"{REASON} it is a protocol."
    assert wrong_in(tmp_path, a_class("class Two:", many)) == ["line 1: Two has 26 methods"]
    assert wrong_in(tmp_path, a_class("class Two:", many[1:])) == []
    assert wrong_in(tmp_path, a_class("class One:", many, reason)) == []
    assert wrong_in(tmp_path, a_class("class One:", many[1:], reason)) == [
        "line 1: One gives a reason for its 25 methods, and needs none"
    ]


def test_inherited_methods_count_once_and_a_reason_is_inherited_too(tmp_path: Path) -> None:
    base = a_class("class Base:", range(20))
    assert wrong_in(tmp_path, base, a_class("class Two(Base):", range(10, 26))) == ["line 23: Two has 26 methods"]
    assert wrong_in(tmp_path, base, a_class("class Two(Base):", range(10, 25))) == []
    base = a_class("class Base:", range(26), f"{REASON} it is a protocol.")
    assert wrong_in(tmp_path, base, a_class("class Two(Base):", range(30))) == []


def test_a_base_is_found_where_it_is_imported_from() -> None:
    node, path = find_class("SurveyedFolder", PROJECT / "tests/unit/server/surveyed.py") or pytest.fail("not there")
    assert [base.name for base in with_bases(node, path)] == ["SurveyedFolder", "DataFolder"]
