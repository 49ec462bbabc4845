"""A class with very many methods mostly holds two ideas. One that holds only one idea says so in its docstring."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
MOST_METHODS = 25
REASON = f"More than {MOST_METHODS} methods:"


def large_classes(source: str) -> list[str]:
    """The classes with too many methods and no reason for it."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            count = sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in node.body)
            if count > MOST_METHODS and REASON not in (ast.get_docstring(node) or ""):
                found.append(f"line {node.lineno}: {node.name} has {count} methods")
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_a_class_has_at_most_25_methods_or_says_why(path: Path) -> None:
    hint = f"split it where there are two ideas, or give the reason in its docstring, after `{REASON}`"
    assert large_classes(path.read_text()) == [], f"{path.relative_to(SOURCE)}\n\nhint: {hint}"


def test_a_class_with_too_many_methods_is_found() -> None:
    methods = [f"    def method_{n}(self): ..." for n in range(MOST_METHODS + 1)]
    assert large_classes("\n".join(["class Two:", *methods])) == ["line 1: Two has 26 methods"]
    assert large_classes("\n".join(["class Two:", *methods[1:]])) == []
    assert large_classes("\n".join(["class One:", f'    """{REASON} it is a protocol."""', *methods])) == []
