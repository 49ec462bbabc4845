"""The history of a run on a log that makes no mistake, for the tests of the checkers and for their speed.

    python -m tests.unit.verify.checkers.simulated FILE --records 500000

Writers and copiers take turns by a seed: they begin, send, commit or abort, or die in the middle. Readers follow the
log, read_committed and read_uncommitted. At rest everything is read once more.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from fencepost.verify.history import (
    Acked,
    Assign,
    Begin,
    Committed,
    End,
    Event,
    Header,
    Init,
    Poll,
    Rest,
    Send,
    SendOffsets,
    TxnEnded,
    Watermarks,
    WholeLog,
    encode,
    encode_header,
)

TOPICS = {"tea": 2, "cup": 2}
GROUP = "copiers"
Where = tuple[str, int]


class Log:
    """One partition. A reader of committed records gets those below the first open transaction."""

    def __init__(self) -> None:
        self.entries: list[list[Any]] = []
        self.open: dict[int, int] = {}  # The first offset of the open transaction of each producer id.
        self.aborted: set[int] = set()

    def append(self, value: str, producer_id: int, epoch: int) -> int:
        offset = len(self.entries)
        self.open.setdefault(producer_id, offset)
        self.entries.append([offset, "data", value, producer_id, epoch])
        return offset

    def end(self, producer_id: int, epoch: int, commit: bool) -> None:
        first = self.open.pop(producer_id, None)
        if first is None:
            return
        if not commit:
            self.aborted |= {e[0] for e in self.entries[first:] if e[1] == "data" and e[3] == producer_id}
        self.entries.append([len(self.entries), "commit" if commit else "abort", "", producer_id, epoch])

    @property
    def last_stable_offset(self) -> int:
        return min(self.open.values(), default=len(self.entries))

    def read(self, position: int, is_committed: bool, most: int) -> tuple[list[list[Any]], int]:
        """Records from a position on, and the next position."""
        end = min(position + most, self.last_stable_offset if is_committed else len(self.entries))
        found = [
            [offset, value]
            for offset, kind, value, _, _ in self.entries[position:end]
            if kind == "data" and not (is_committed and offset in self.aborted)
        ]
        return found, max(position, end)


class Client:
    """A writer, or a copier, which makes an output of each input and sends its offsets. Each step is a generator's."""

    def __init__(self, run: Run, name: str, producer_id: int, is_copier: bool) -> None:
        self.run, self.name, self.producer_id, self.is_copier = run, name, producer_id, is_copier
        self.epoch = self.number = 0
        self.is_started = False
        self.steps: Any = iter(())

    def step(self) -> None:
        if next(self.steps, None) is None:
            self.steps = self._transaction()
            next(self.steps)

    def _transaction(self) -> Any:
        """One transaction. Every yield lets others run."""
        run, rng, name = self.run, self.run.rng, self.name
        if not self.is_started:
            self.is_started = True
            run.note(Init(run.now(), name, name, self.producer_id, self.epoch, 1))
        self.number += 1
        number, touched = self.number, set()
        run.note(Begin(run.now(), name, number))
        yield True
        for place, source in enumerate(self._sources()):
            where = ("cup" if self.is_copier else "tea", rng.randrange(2))
            value = f"{name}:{number}:{place}"
            run.note(Send(run.now(), name, number, value, *where, source))
            yield True
            offset = run.logs[where].append(value, self.producer_id, self.epoch)
            touched.add(where)
            run.note(Acked(run.now(), name, value, *where, offset))
            yield True
        if self.is_copier:
            run.note(SendOffsets(run.now(), name, number, GROUP, [["tea", 0, run.next_input]]))
        fate = rng.random()
        commit = fate < 0.7 or fate >= 0.97
        if fate < 0.95:
            run.note(End(run.now(), name, number, commit))
            yield True
            self._end(touched, commit)
            yield True
            run.note(TxnEnded(run.now(), name, number, "committed" if commit else "aborted"))
        else:
            # It dies, some of them while the request is on its way, and starts again.
            if commit:
                run.note(End(run.now(), name, number, True))
                yield True
            self.epoch += 1
            self._end(touched, commit and rng.random() < 0.5)
            self.is_started = False
        yield True

    def _sources(self) -> Iterable[list[Any] | None]:
        if not self.is_copier:
            yield from [None] * self.run.rng.randrange(1, 6)
            return
        found, self.run.next_input = self.run.logs["tea", 0].read(self.run.copied, True, 5)
        for offset, _ in found:
            yield ["tea", 0, offset]

    def _end(self, touched: set[Where], commit: bool) -> None:
        for where in sorted(touched):
            self.run.logs[where].end(self.producer_id, self.epoch, commit)
        if commit and self.is_copier:
            self.run.copied = self.run.next_input


class Run:
    """A whole run: its events come out in the order of time."""

    def __init__(self, seed: int, writers: int = 3) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.events: list[Event] = []
        self.logs: dict[Where, Log] = {(topic, n): Log() for topic, count in TOPICS.items() for n in range(count)}
        self.copied = self.next_input = 0  # Where the group is, and where it will be after the copier's transaction.
        self._clock = 0
        self._clients = [Client(self, f"writer-{n}", n + 1, is_copier=False) for n in range(writers)]
        self._clients.append(Client(self, "copier-0", 100, is_copier=True))
        self._positions: dict[tuple[str, Where], int] = defaultdict(int)

    def now(self) -> int:
        self._clock += self.rng.randrange(1000, 50_000)
        return self._clock

    def note(self, event: Event) -> None:
        self.events.append(event)

    def play(self, records: int) -> Run:
        """Run until so many records were sent, and read everything at rest."""
        for by, isolation in (("follower-0", "read_committed"), ("follower-1", "read_uncommitted")):
            for where in self.logs:
                self.note(Assign(self.now(), by, isolation, *where, 0))
        turns = 0
        while sum(len(log.entries) for log in self.logs.values()) < records:
            self.rng.choice(self._clients).step()
            turns += 1
            if turns % 50 == 0:
                self._poll("follower-0", True)
                self._poll("follower-1", False)
        for client in self._clients:
            for _ in client.steps:
                pass
        self._rest()
        return self

    def _poll(self, by: str, is_committed: bool) -> None:
        for where, log in self.logs.items():
            found, self._positions[by, where] = log.read(self._positions[by, where], is_committed, 500)
            if found:
                self.note(Poll(self.now(), by, *where, found))

    def _rest(self) -> None:
        self.note(Rest(self.now(), "main"))
        for where, log in self.logs.items():
            self.note(Assign(self.now(), "final-0", "read_committed", *where, 0))
            position = 0
            while position < len(log.entries):
                found, position = log.read(position, True, 500)
                self.note(Poll(self.now(), "final-0", *where, found))
            self.note(Watermarks(self.now(), "main", *where, log.last_stable_offset, len(log.entries)))
            for first in range(0, len(log.entries), 500):
                self.note(WholeLog(self.now(), "main", *where, log.entries[first : first + 500]))
        self.note(Committed(self.now(), "main", GROUP, [["tea", 0, self.copied]]))

    @property
    def header(self) -> Header:
        return Header(self.seed, {"run": "simulated"}, TOPICS, copies={GROUP: "cup"})


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the history of a simulated run.")
    parser.add_argument("file")
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    run = Run(given.seed).play(given.records)
    with open(given.file, "w") as file:
        file.write(encode_header(run.header))
        file.writelines(map(encode, run.events))
    sent = sum(isinstance(event, Send) for event in run.events)
    read = sum(len(event.records) for event in run.events if isinstance(event, Poll))
    print(f"{given.file}: {len(run.events)} events, {sent} records sent, {read} read")


if __name__ == "__main__":
    main()
