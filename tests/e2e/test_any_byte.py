"""Any file of a data folder, damaged at any byte: starts and readers say so, or it does no harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.any_byte import UNNOTICED, Damage, Trial, judge, no_syncs, prepare, try_seeds

DOCUMENT = Path(__file__).parents[2] / "docs/reliability.md"


@pytest.mark.parametrize(
    "seeds",
    [
        range(100),
        *(pytest.param(range(first, first + 500), marks=pytest.mark.engines) for first in (100, 600, 1100, 1600)),
    ],
    ids=lambda seeds: f"seeds {seeds.start} to {seeds.stop - 1}",
)
def test_damage_to_any_byte_is_noticed_or_does_no_harm(seeds: range, tmp_path: Path) -> None:
    verdicts = list(try_seeds(tmp_path, seeds))
    failed = [verdict.story for verdict in verdicts if verdict.outcome.startswith("FAIL")]
    assert failed == [], "\n\n".join(failed)
    if len(seeds) > 100:
        outcomes = {verdict.outcome for verdict in verdicts}
        assert outcomes >= {"no harm", "refused", "refused, accepted", "reported", "a reader says so"}


def change(folder: Path, file: str, old: bytes, new: bytes) -> Damage:
    content = (folder / file).read_bytes()
    at = content.index(old)
    (folder / file).write_bytes(content[:at] + new + content[at + len(old) :])
    return Damage(file, "flip", at, at + len(old))


def remove(folder: Path, file: str) -> Damage:
    size = (folder / file).stat().st_size
    (folder / file).unlink()
    return Damage(file, "delete", 0, size)


# For each line of the list a damage that only this line allows, and how the process before it ended.
TRIED = {
    "log-start-offset-checkpoint": (
        "kill",
        lambda folder: change(folder, "log-start-offset-checkpoint", b" 7\n", b" 3\n"),
    ),
    "leader-epoch-checkpoint": (
        "kill",
        lambda folder: change(folder, "orders-0/leader-epoch-checkpoint", b"1 3", b"1 2"),
    ),
    "base offset": (
        "stop",
        lambda folder: change(folder, f"orders-1/{0:020d}.log", bytes(7) + b"\4", bytes(6) + b"\1\4"),
    ),
    "The end, or all,": ("kill", lambda folder: remove(folder, f"orders-0/{0:020d}.log")),
}


@pytest.mark.parametrize("what", TRIED)
def test_what_goes_unnoticed_is_in_the_list_of_the_document(what: str, tmp_path: Path) -> None:
    (text,) = (listed.text for listed in UNNOTICED if what in listed.text)
    assert f"- {text}\n" in DOCUMENT.read_text()
    end, damage = TRIED[what]
    with no_syncs():
        trial = Trial(prepare(tmp_path), tmp_path / "damaged", end, damage)
        assert judge(trial) == f"unnoticed, as listed: {text}", "\n".join(trial.story)


def test_every_line_of_the_list_is_tried() -> None:
    assert len(TRIED) == len(UNNOTICED)
