"""The result of a check: one line for each subject, with a hint where the user has to act."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

OK, WARNING, PROBLEM, UNKNOWN = "ok", "warning", "problem", "not checked"


@dataclass(frozen=True, slots=True)
class Checked:
    subject: str
    status: str
    text: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class CheckReport:
    findings: tuple[Checked, ...]

    @property
    def is_ok(self) -> bool:
        """Nothing that was checked would stop the pipeline."""
        return not any(finding.status == PROBLEM for finding in self.findings)

    def __str__(self) -> str:
        return "\n".join(_lines(self.findings))


def from_message(subject: str, message: str, status: str = PROBLEM) -> Checked:
    """From the message of an exception, which may have a hint."""
    text, _, hint = message.partition("\n\nhint: ")
    return Checked(subject, status, text, hint or None)


def _lines(findings: Iterable[Checked]) -> Iterable[str]:
    for finding in findings:
        yield f"{finding.status:<11}  {finding.subject}: {finding.text}"
        if finding.hint is not None:
            yield from (f"{'':<13}{line}" for line in f"hint: {finding.hint}".splitlines())
