"""Damages any file of a data folder at any byte, by a seed, and judges what starts and readers make of it.

    python -m tests.crash.any_byte --seed 7            one damage, with what was seen
    python -m tests.crash.any_byte --seed 7 --count 2000

What must hold: the start or the readers say that something is wrong, or nothing is. Nothing is lost or shown in silence
beyond `UNNOTICED`, only the damaged log suffers, there is no traceback and no hang.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fencepost.protocol import errors
from fencepost.protocol.batch import LEADER_EPOCH, LENGTH_AT, MAGIC_AT, decode_header
from fencepost.server.startup import explain
from fencepost.server.storage import syncing
from tests.crash.damaged_folder import (
    GROUPS,
    SETTINGS,
    TOPICS,
    TXN_IDS,
    Noticed,
    Producer,
    View,
    commit_offset,
    fill,
    log_of_group,
    log_of_txn,
    look,
)
from tests.folder_broker import FolderBroker

HANG_S = 20
LATER_MS = 1_700_000_010_000  # When the damaged folder is opened.
ENDS = ("stop", "kill")
NEWEST_EPOCH = 1  # Of the undamaged folder.

READ_COMMITTED = {f"{topic}-{index} committed" for topic, count in TOPICS.items() for index in range(count)}


class Listed(NamedTuple):
    """A way in which damage may go unnoticed. `text`: its line in docs/reliability.md; `answers`: those that change."""

    text: str
    applies: Callable[[Damage, str, bytes], bool]  # The damage, how the last process ended, the undamaged file.
    answers: str = " (start|end|epochs|uncommitted|committed)$"


class Damage(NamedTuple):
    file: str  # Its path in the folder.
    how: str
    first: int  # The changed bytes of the file, as far as they are known.
    after: int

    @property
    def log(self) -> str:
        """The log that the file belongs to; empty for a file of the folder."""
        return self.file.partition("/")[0] if "/" in self.file else ""

    def __str__(self) -> str:
        return f"{self.file}: {self.how} at {self.first} to {self.after}"


def has_no_checksum(damage: Damage, content: bytes) -> bool:
    """Whether only base offsets and leader epochs of batches changed."""
    begins = []
    position = 0
    while damage.file.endswith(".log") and position < len(content):
        begins.append(position)
        position += decode_header(content, position).size_bytes
    return damage.how in ("flip", "set", "zeros") and all(
        any(begin <= at < begin + LENGTH_AT or begin + LEADER_EPOCH.start <= at < begin + MAGIC_AT for begin in begins)
        for at in range(damage.first, damage.after)
    )


UNNOTICED = (
    Listed(
        "**`log-start-offset-checkpoint`, after a kill**: deleted records come back, or more records count as deleted.",
        lambda damage, end, content: end == "kill" and damage.file == "log-start-offset-checkpoint",
        " (start|uncommitted|committed)$",
    ),
    Listed(
        "**`leader-epoch-checkpoint`, after a kill**: a client that asks for the end of an epoch gets another offset.",
        lambda damage, end, content: end == "kill" and damage.file.endswith("/leader-epoch-checkpoint"),
        " epochs$",
    ),
    Listed(
        "**The base offset and the leader epoch of a batch**: records have other offsets, and readers pass over some.",
        lambda damage, end, content: has_no_checksum(damage, content),
    ),
    Listed(
        "**The end, or all, of a `.log` after a kill**: the records that no other file of the folder proves are gone.",
        lambda damage, end, content: end == "kill" and damage.file.endswith(".log") and damage.after >= len(content),
        "",
    ),
)


# --- damage -------------------------------------------------------------------------------------------------


def do_damage(folder: Path, rng: random.Random) -> Damage:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    kinds: dict[str, list[Path]] = {}
    for path in files:
        kinds.setdefault(path.suffix if path.parent != folder else path.name, []).append(path)
    # Half of the damages are spread over the kinds of files, since there are many more logs than documents.
    path = rng.choice(kinds[rng.choice(sorted(kinds))]) if rng.random() < 0.5 else rng.choice(files)
    how = rng.choice(sorted(DAMAGES))
    before = path.read_bytes()
    first, after, content = DAMAGES[how](before, rng)
    if content is None:
        path.unlink()
        if how == "folder":
            path.mkdir()
    else:
        path.write_bytes(content)
    return Damage(str(path.relative_to(folder)), how, first, after)


Changed = tuple[int, int, bytes | None]


def _flip(data: bytes, rng: random.Random) -> Changed:
    if not data:
        return _append(data, rng)
    at = rng.randrange(len(data))
    return at, at + 1, data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _set(data: bytes, rng: random.Random) -> Changed:
    if not data:
        return _append(data, rng)
    at = rng.randrange(len(data))
    return at, at + 1, data[:at] + bytes([rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])]) + data[at + 1 :]


def _cut(data: bytes, rng: random.Random) -> Changed:
    at = rng.randrange(len(data) + 1)
    return at, len(data), data[:at]


def _empty(data: bytes, rng: random.Random) -> Changed:
    return 0, len(data), b""


def _append(data: bytes, rng: random.Random) -> Changed:
    more = rng.randbytes(rng.choice([1, 3, 34, 61, 200]))
    return len(data), len(data) + len(more), data + more


def _zeros(data: bytes, rng: random.Random) -> Changed:
    at = rng.randrange(len(data) + 1)
    size = rng.choice([1, 8, 61, 512])
    return at, at + size, data[:at] + bytes(min(size, len(data) - at)) + data[at + size :]


def _double(data: bytes, rng: random.Random) -> Changed:
    at = rng.randrange(len(data) + 1)
    after = min(len(data), at + rng.choice([1, 8, 34, 150, len(data)]))
    return after, 2 * after - at, data[:after] + data[at:after] + data[after:]


def _text(data: bytes, rng: random.Random) -> Changed:
    return 0, len(data), rng.choice([b"hello\n", b"0\n1\nhello\n", b"{}", "Grüße".encode("latin-1"), b"-1\n"])


DAMAGES: Mapping[str, Callable[[bytes, random.Random], Changed]] = {
    "flip": _flip,
    "set": _set,
    "cut": _cut,
    "empty": _empty,
    "append": _append,
    "zeros": _zeros,
    "double": _double,
    "delete": lambda data, rng: (0, len(data), None),
    "folder": lambda data, rng: (0, len(data), None),
    "text": _text,
}


# --- one damage ---------------------------------------------------------------------------------------------


class Wrong(Exception):
    """A rule is broken."""


class Hang(BaseException):
    """Not an Exception: nothing may catch it."""


DoDamage = Callable[[Path], Damage]  # Damages a file of the folder.


class Undamaged(NamedTuple):
    folder: Path
    view: View


def prepare(folder: Path) -> dict[str, Undamaged]:
    found = {}
    for end in ENDS:
        path = folder / end
        fill(path, end)
        shutil.copytree(path, folder / "looked-at")
        broker = FolderBroker(folder / "looked-at", SETTINGS, now_ms=LATER_MS)
        assert broker.reports == []
        found[end] = Undamaged(path, look(broker))
        broker.kill()
        shutil.rmtree(folder / "looked-at")
    return found


class Trial:
    """One damage to a copy of a folder. `story` has what was seen, for a failure."""

    def __init__(self, undamaged: Mapping[str, Undamaged], work: Path, end: str, do: DoDamage) -> None:
        self.end = end
        self.before = undamaged[self.end].view
        self.path = work
        shutil.copytree(undamaged[self.end].folder, work)
        self.damage = do(work)
        self.content = (undamaged[self.end].folder / self.damage.file).read_bytes()
        self.story = [f"after a {self.end}: {self.damage}"]
        self.outcome = ""

    def run(self) -> None:
        """Raises Wrong."""
        broker = self.start("refuse")
        was_refused = broker is None
        if broker is None:
            broker = self.start("accept")
        if broker is None:
            self.outcome = "refused"
            return
        try:
            seen = look(broker)
            is_reported = self.reported(broker)
            is_after_loss = broker.cluster.metadata.leader_epoch > NEWEST_EPOCH
            # The coordinator that has lost a state aborts what is open, wherever it is.
            is_after_loss = is_after_loss or (self.damage.file.startswith("__transaction_state") and self.end == "kill")
            self.judge(seen, is_reported, is_after_loss)
            self.go_on(broker, seen)
            if was_refused or (is_reported and not self.outcome.startswith("unnoticed")):
                self.outcome = "refused, accepted" if was_refused else "reported"
        finally:
            broker.kill()

    def start(self, missing: str) -> FolderBroker | None:
        try:
            broker = FolderBroker(self.path, SETTINGS, missing, now_ms=LATER_MS)
        except Exception as error:
            said = explain(error, str(self.path))
            if said is None:
                raise
            self.story.append(f"refused ({missing}): {said}")
            if "\n\nhint: " not in said:
                raise Wrong("a refusal without a hint") from error
            named = self.damage.log or "has less than its own records say"
            if Path(self.damage.file).name not in said and named not in said:
                raise Wrong("a refusal that does not name the file, or its log") from error
            return None
        self.story += [f"reported: {line}" for line in broker.reports + broker.notices]
        return broker

    def reported(self, broker: FolderBroker) -> bool:
        names = [self.damage.log] if self.damage.log else [Path(self.damage.file).name]
        return any(name in line for name in names for line in broker.reports + broker.notices)

    def judge(self, seen: View, is_reported: bool, is_after_loss: bool) -> None:
        """Compare what clients saw with what they had to see."""
        for name, before in self.before.items():
            now = seen[name]
            if now == before or (is_after_loss and is_changed_by_a_loss(name, before, now)):
                continue
            self.story.append(f"{name}: {shortened(now)} instead of {shortened(before)}")
            is_silent = not is_reported
            if isinstance(now, Noticed):
                self.outcome = self.outcome or "a reader says so"
                is_silent = False
                now = now.part
            listed = self.find_listed(name)
            if listed:
                self.outcome = f"unnoticed, as listed: {listed}"
                continue
            if is_silent:
                raise Wrong(f"{name} is wrong in silence")
            if log_of(name) not in ("", self.damage.log) and self.damage.log:
                raise Wrong(f"{name} suffers from damage to {self.damage.log}")
            if name in READ_COMMITTED and not is_after_loss:
                forbidden = [value for _, value in now if not value.startswith((b"plain", b"committed"))]
                if forbidden:
                    raise Wrong(f"{name} shows {forbidden[0]!r}")

    def find_listed(self, name: str) -> str:
        """The line of the list that allows this answer to be wrong in silence; empty if there is none."""
        for listed in UNNOTICED:
            if listed.applies(self.damage, self.end, self.content) and re.search(listed.answers, name):
                return listed.text
        return ""

    def go_on(self, broker: FolderBroker, seen: View) -> None:
        """The broker still works, and the next starts find what this one served."""
        damaged = {log_of(name) for name, answer in seen.items() if isinstance(answer, Noticed)} | {self.damage.log}
        producer = Producer(broker)
        for topic, count in TOPICS.items():
            for index in range(count):
                code = producer.send(topic, index, (b"new", b"plain new"))
                if code and f"{topic}-{index}" not in damaged:
                    raise Wrong(f"{topic}-{index} takes no records: {errors.name_of(code)}")
        for group_id in ("plain", "new"):
            code = commit_offset(broker, group_id, 77)
            if code and log_of_group(group_id) not in damaged:
                raise Wrong(f"group {group_id} takes no offsets: {errors.name_of(code)}")
        after = look(broker)
        broker.stop()
        again = FolderBroker(self.path, SETTINGS, now_ms=LATER_MS)
        try:
            self.story += [f"reported by the next start: {line}" for line in again.reports]
            found = look(again)
            for name, answer in after.items():
                if found[name] != answer and log_of(name) not in damaged:
                    raise Wrong(f"after a restart, {name} is {shortened(found[name])}, before {shortened(answer)}")
        finally:
            again.kill()


def is_changed_by_a_loss(name: str, before: Any, now: Any) -> bool:
    """What a start after a loss changes on purpose: open transactions are aborted, ids get new producers."""
    if name.endswith(" end"):
        return isinstance(now, int) and now >= before
    if name.startswith("id "):
        return isinstance(now, tuple) and now[1] in ("Empty", "CompleteAbort")
    return name == "producer ids" or (name == "group pending" and now == -1)


def log_of(name: str) -> str:
    """The log that an answer is kept in; empty if it is kept in the document."""
    for group_id in GROUPS:
        if name == f"group {group_id}":
            return log_of_group(group_id)
    for transactional_id in TXN_IDS:
        if name == f"id {transactional_id}":
            return log_of_txn(transactional_id)
    return name.partition(" ")[0] if "-" in name else ""


def shortened(answer: Any) -> str:
    if isinstance(answer, Noticed):
        return f"{answer.why} after {shortened(answer.part)}"
    if isinstance(answer, tuple) and answer and isinstance(answer[0], tuple):
        values = [(offset, value[:12]) for offset, value in answer if isinstance(value, bytes)]
        if values:
            return f"{len(values)} records, {values[0]} to {values[-1]}"
    return str(answer)[:300]


@contextmanager
def no_hang() -> Iterator[None]:
    def hangs(*_: Any) -> None:
        raise Hang(f"no end after {HANG_S} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- many ---------------------------------------------------------------------------------------------------


class Verdict(NamedTuple):
    seed: int
    outcome: str  # If it begins with FAIL, `story` says why.
    damage: str
    story: str


def try_seed(undamaged: Mapping[str, Undamaged], work: Path, seed: int) -> Verdict:
    rng = random.Random(seed)
    trial = Trial(undamaged, work, rng.choice(ENDS), lambda folder: do_damage(folder, rng))
    outcome = judge(trial)
    story = [*trial.story, outcome, f"\nto repeat it: .venv/bin/python -m tests.crash.any_byte --seed {seed}"]
    return Verdict(seed, outcome, str(trial.damage), "\n".join(story))


def judge(trial: Trial) -> str:
    """Run it and remove its folder; return the outcome."""
    try:
        with no_hang():
            trial.run()
        return trial.outcome or "no harm"
    except Wrong as wrong:
        return f"FAIL: {wrong}"
    except (Exception, Hang) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        trial.story.append("".join(traceback.format_exception(error)))
        return f"FAIL: {type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {error}"
    finally:
        shutil.rmtree(trial.path, ignore_errors=True)


def try_seeds(folder: Path, seeds: range) -> Iterator[Verdict]:
    with no_syncs():
        undamaged = prepare(folder)
        for seed in seeds:
            yield try_seed(undamaged, folder / "damaged", seed)


@contextmanager
def no_syncs() -> Iterator[None]:
    """The machine does not fail here, so nothing has to wait for the disk."""
    before = os.fsync, os.fdatasync, syncing._find_syncfs
    os.fsync = os.fdatasync = lambda fd: None
    syncing._find_syncfs = lambda: None
    try:
        yield
    finally:
        os.fsync, os.fdatasync, syncing._find_syncfs = before


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.any_byte", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="fencepost-any-byte-") as folder:
        for verdict in try_seeds(Path(folder), range(options.seed, options.seed + options.count)):
            counts["FAIL" if verdict.outcome.startswith("FAIL") else verdict.outcome] += 1
            if options.count == 1:
                print(verdict.story)
            elif verdict.outcome.startswith("FAIL"):
                print(f"seed {verdict.seed}: {verdict.damage}: {verdict.outcome}"[:400], flush=True)
    for outcome, count in counts.most_common():
        print(f"{count:5}  {outcome}")
    return 1 if counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
