"""A ledger that several processes write: each client writes its own file, and the checking process reads them all.

A line is `[number, state, topics]`. A client writes one before it asks the broker to commit, because from then on
others may read the records, and one when the transaction is over. After a kill, the client's next process finds the
unfinished transaction in its file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.crash.ledger import Entry, Ledger, Outcome

ASKED = "asked"


class JournalEntry(Entry):
    __slots__ = ("_fd",)

    def __init__(self, writer: str, number: int, fd: int) -> None:
        super().__init__(writer, number)
        self._fd = fd

    def ask(self) -> None:
        self._note(ASKED)

    def end(self, outcome: Outcome) -> None:
        super().end(outcome)
        self._note(outcome.value)

    def _note(self, state: str) -> None:
        os.write(self._fd, json.dumps([self.number, state, self.topics]).encode() + b"\n")


class Journal(Ledger):
    """The journal of one client. `left_behind`: the transaction that its last process did not end, and its outcome."""

    def __init__(self, path: Path, writer: str) -> None:
        super().__init__()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        before = Journals({writer: path})
        before.refresh()
        mine = before.of(writer)
        self.left_behind: tuple[Entry, Outcome] | None = None
        # The last process may have begun one more, and have written it to the broker but not to the file.
        self._first_number = len(mine) + 1
        if mine and mine[-1].outcome is Outcome.OPEN:
            last = JournalEntry(writer, mine[-1].number, self._fd)
            last.topics = mine[-1].topics
            self.left_behind = last, Outcome.UNKNOWN

    def _new_entry(self, writer: str, number: int) -> Entry:
        return JournalEntry(writer, self._first_number + number, self._fd)


class Journals(Ledger):
    """The journals of all clients, as far as they were read."""

    def __init__(self, paths: dict[str, Path]) -> None:
        super().__init__()
        self._paths = paths
        self._read_bytes = dict.fromkeys(paths, 0)

    def add(self, writer: str, path: Path) -> None:
        self._paths[writer] = path
        self._read_bytes[writer] = 0

    def refresh(self) -> None:
        for writer, path in self._paths.items():
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(self._read_bytes[writer])
                # The last line may be incomplete.
                whole = file.read().rpartition(b"\n")
            self._read_bytes[writer] += len(whole[0]) + len(whole[1])
            for line in whole[0].splitlines():
                self._take(writer, *json.loads(line))

    def of(self, writer: str) -> list[Entry]:
        return self._entries.get(writer, [])

    def _take(self, writer: str, number: int, state: str, topics: list[str]) -> None:
        mine = self._entries.setdefault(writer, [])
        while len(mine) <= number:
            # The broker was never asked to commit those in between, so no reader may see them.
            mine.append(Entry(writer, len(mine)))
        mine[number].topics = topics
        if state != ASKED:
            mine[number].end(Outcome(state))
