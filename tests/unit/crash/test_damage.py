"""The damage that `make crash` does, and what it must leave alone."""

from __future__ import annotations

import json
import random
from pathlib import Path

from fencepost.protocol.batch import encode_batch, stamp
from fencepost.server.control import POINTS
from scripts.crash import plan_rounds
from tests.crash.damage import change_a_byte, tear_tails
from tests.crash.power import DurableDisk

SYNCED, UNSYNCED = b"synced" * 1000, b"not yet" * 1000


def a_disk(tmp_path: Path) -> tuple[Path, Path]:
    folder = tmp_path / "data"
    (folder / "orders-0").mkdir(parents=True)
    return folder, tmp_path / "syncs"


def test_a_power_loss_takes_only_what_was_not_synced(tmp_path: Path) -> None:
    folder, syncs = a_disk(tmp_path)
    outcomes = set()
    for seed in range(40):
        old, new = folder / "orders-0" / "old.log", folder / "orders-0" / "new.log"
        old.write_bytes(SYNCED)
        new.unlink(missing_ok=True)
        disk = DurableDisk(folder, syncs)
        old.write_bytes(SYNCED + UNSYNCED)
        new.write_bytes(UNSYNCED)
        disk.lose_power(random.Random(seed))
        assert old.read_bytes().startswith(SYNCED)
        outcomes.add((old.read_bytes() == SYNCED + UNSYNCED, new.exists()))
    assert len(outcomes) == 4, "each may be lost, and none has to be"


def test_a_sync_counts_for_what_was_there_when_it_began(tmp_path: Path) -> None:
    folder, syncs = a_disk(tmp_path)
    disk = DurableDisk(folder, syncs)
    log = folder / "orders-0" / "new.log"
    log.write_bytes(SYNCED + UNSYNCED)
    notes = [[log.stat().st_ino, len(SYNCED)], [log.parent.stat().st_ino, [log.stat().st_ino]]]
    syncs.write_text("".join(json.dumps(note) + "\n" for note in notes) + "[1, 2")
    sizes = set()
    for seed in range(20):
        log.write_bytes(SYNCED + UNSYNCED)
        disk.lose_power(random.Random(seed))
        assert log.read_bytes().startswith(SYNCED)
        sizes.add(log.stat().st_size)
    assert len(sizes) > 2


def test_a_torn_tail_is_no_whole_batch_and_a_changed_byte_is_in_one(tmp_path: Path) -> None:
    folder, _ = a_disk(tmp_path)
    log = folder / "orders-0" / f"{0:020d}.log"
    batches = [stamp(encode_batch([(None, b"value")], 0), offset, 0) for offset in range(5)]
    for seed in range(20):
        log.write_bytes(b"".join(batches))
        assert tear_tails(folder, random.Random(seed), 3) == ["orders-0"]
        assert log.read_bytes().startswith(b"".join(batches))
        assert not log.read_bytes().endswith(stamp(batches[0], 5, 0))
    log.write_bytes(b"".join(batches))
    assert change_a_byte(log, at_least_batches=2) == 2
    changed = log.read_bytes()
    size = len(batches[0])
    assert [changed[at * size : (at + 1) * size] == batches[at] for at in range(5)] == [True, True, False, True, True]


def test_a_hundred_rounds_reach_every_named_point() -> None:
    for seed in range(10):
        plans = plan_rounds(100, random.Random(seed), client_count=6)
        assert {plan.point for plan in plans} == {"", *POINTS}
        assert any(plan.loses_power for plan in plans)
        assert all(plan.settings["fencepost.flush.on.commit"] == "true" for plan in plans if plan.loses_power)
