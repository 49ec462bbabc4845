"""The report of a demo: sections with sentences, tables, and checks that compare found with expected values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any

Progress = Callable[[str], None]


class DemoFailed(Exception):
    """The demo could not finish, for a reason outside of the demo."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Check:
    """One claim. The report shows `evidence` if the claim does not hold."""

    claim: str
    expected: Any
    found: Any
    evidence: Sequence[str] = ()

    @property
    def holds(self) -> bool:
        return bool(self.expected == self.found)

    def document(self) -> dict[str, Any]:
        document = {
            "claim": self.claim,
            "expected": _plain(self.expected),
            "found": _plain(self.found),
            "holds": self.holds,
        }
        return document if self.holds else {**document, "evidence": list(self.evidence)}


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


@dataclass(slots=True)
class Section:
    """A part of the report: a heading, sentences, an optional table, and checks."""

    title: str
    sentences: list[str] = field(default_factory=list)
    columns: tuple[str, ...] = ()
    rows: list[tuple[str | int, ...]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "story": self.sentences,
            "table": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
            "checks": [check.document() for check in self.checks],
        }


@dataclass(slots=True)
class Report:
    demo: str
    facts: dict[str, Any]
    sections: list[Section]

    @property
    def checks(self) -> list[Check]:
        return [check for section in self.sections for check in section.checks]

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)

    def document(self) -> dict[str, Any]:
        """The report as a JSON document."""
        sections = [section.document() for section in self.sections]
        return {"demo": self.demo, **self.facts, "holds": self.holds, "sections": sections}
