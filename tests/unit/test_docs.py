"""The documents say what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts/reference.py")
assert _spec is not None
assert _spec.loader is not None
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)


@pytest.mark.parametrize("page", reference.PAGES)
def test_a_reference_page_is_what_the_code_says(page: str) -> None:
    assert (ROOT / page).read_text() == reference.PAGES[page](), "run: .venv/bin/python scripts/reference.py"


def test_every_link_in_the_documents_leads_somewhere() -> None:
    broken = []
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text()):
            if not (document.parent / target).exists():
                broken.append(f"{document.relative_to(ROOT)}: {target}")
    assert not broken


def test_every_file_that_the_architecture_names_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    names = set(re.findall(r"\b(?:[a-z_]+/)*[a-z0-9_]+\.py\b", text))
    known = {str(path) for path in (ROOT / "src/fencepost").rglob("*.py")} | {
        str(path) for path in (ROOT / "tests").rglob("*.py")
    }
    missing = [name for name in names if not any(path.endswith("/" + name) for path in known)]
    assert not missing


def test_the_readme_names_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make run" in readme
    assert "make test" in readme
