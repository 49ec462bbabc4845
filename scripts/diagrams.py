"""Write the generated blocks of the documents: diagrams, tables, quoted transcripts and the list of decisions.

    python -m scripts.diagrams

A block in a page under docs/ stands between `<!-- generated: NAME ARGUMENTS -->` and `<!-- /generated -->`; `BLOCKS`
has the names. State diagrams come from the tables of legal moves, tables from the decisions, the sequence of a commit
from a broker that is watched while it commits, and the other sequences from stories that are run on a broker. The
tables of the benchmarks come from their file of results. A test fails while a block is out of date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Set
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import report
from fencepost.machines.group.classic.group import LEGAL as GROUP_MOVES
from fencepost.machines.log.interface import Log, LogConfig
from fencepost.machines.log.memory import MemoryLog, MemoryStorage
from fencepost.machines.txn import decisions as txn
from fencepost.machines.txn.records import decode_key, decode_value
from fencepost.machines.txn.states import LEGAL as TXN_MOVES
from fencepost.machines.txn.states import Txn
from fencepost.protocol import errors
from fencepost.protocol.batch import Buffer, decode_marker
from fencepost.protocol.records import iter_batches, iter_records
from fencepost.protocol.schema import Message
from fencepost.protocol.transaction_version import TV2
from fencepost.verify.checkers.kinds import KINDS
from fencepost.web.machine import TXN_CAUSES
from tests.pure_broker import PureBroker
from tests.transcripts.parsing import TV1_REQUESTS, TV2_REQUESTS, Step, Transcript, parse_step
from tests.transcripts.running import run
from tests.wire.raw_client import CLIENT_ID

ROOT = Path(__file__).resolve().parent.parent
TRANSCRIPTS = ROOT / "tests/transcripts"
_BLOCK = re.compile(r"(<!-- generated: (.+?) -->\n)(.*?)(<!-- /generated -->)", re.DOTALL)

# --- state diagrams ---------------------------------------------------------------------------------------------

S = TypeVar("S", bound=Enum)

# What causes a move. A test checks that each of them is in the table of legal moves.
GROUP_CAUSES = {
    ("Empty", "PreparingRebalance"): "a first member joins",
    ("PreparingRebalance", "CompletingRebalance"): "all members have joined, or the time is up",
    ("PreparingRebalance", "Empty"): "no member joined in time",
    ("CompletingRebalance", "Stable"): "the leader sends the assignment",
    ("CompletingRebalance", "PreparingRebalance"): "a member joins, leaves or fails",
    ("Stable", "PreparingRebalance"): "a member joins, leaves or fails",
}


def kafka_name(state: Enum) -> str:
    """`PREPARE_COMMIT` is `PrepareCommit` to Kafka's clients."""
    return "".join(word.capitalize() for word in state.name.split("_"))


def state_diagram(moves: Mapping[S, Set[S]], causes: Mapping[tuple[str, str], str], first: str) -> Iterator[str]:
    yield from ("```mermaid", "stateDiagram-v2", f"    [*] --> {first}")
    for before, allowed in moves.items():
        for after in sorted(allowed, key=lambda state: list(moves).index(state)):
            edge = kafka_name(before), kafka_name(after)
            cause = causes.get(edge)
            yield f"    {edge[0]} --> {edge[1]}" + (f": {cause}" if cause else "")
    yield "```"


def txn_states() -> Iterator[str]:
    return state_diagram(TXN_MOVES, TXN_CAUSES, "Empty")


def group_states() -> Iterator[str]:
    return state_diagram(GROUP_MOVES, GROUP_CAUSES, "Empty")


# --- EndTxn, state by state -------------------------------------------------------------------------------------

EPOCH = 7  # The epoch that the coordinator has. Any other would do, except the last ones.
STATES = ("EMPTY", "ONGOING", "PREPARE_COMMIT", "PREPARE_ABORT", "COMPLETE_COMMIT", "COMPLETE_ABORT")
# How the epoch of a request may compare with the coordinator's.
SENT_EPOCHS = {
    "TV1": {"same": EPOCH, "older": EPOCH - 1},
    "TV2": {"same": EPOCH, "previous": EPOCH - 1, "older": EPOCH - 2},
}


def end_txn_table(version: str) -> Iterator[str]:
    """What EndTxn is answered with in each state, by the epoch in the request and by what it asks for."""
    sent = SENT_EPOCHS[version]
    columns = [(name, epoch, commit) for name, epoch in sent.items() for commit in (True, False)]
    yield "| state | " + " | ".join(f"{name} epoch, {'commit' if c else 'abort'}" for name, _, c in columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for name in STATES:
        state = next(state for state in TXN_MOVES if state.name == name)
        answers = [_end_txn_answer(version, state, epoch, commit) for _, epoch, commit in columns]
        yield f"| `{kafka_name(state)}` | " + " | ".join(answers) + " |"


def _end_txn_answer(version: str, state: Enum, epoch: int, commit: bool) -> str:
    before = Txn("t1", 1, EPOCH, 60_000, state=state, previous_producer_id=1)  # type: ignore[arg-type]
    if version == "TV1":
        decision = txn.decide_end(before, 1, epoch, commit, 0)
    else:
        before = before._replace(client_transaction_version=TV2)
        decision = txn.decide_end_and_bump(before, 1, epoch, commit, 0, lambda: 2)
    if decision.error:
        return f"`{errors.name_of(decision.error)}`"
    return f"moves to `{kafka_name(decision.record.state)}`" if decision.record else "success: a retry"


# --- stories ----------------------------------------------------------------------------------------------------

# Transcripts, short enough for a diagram. Each is run on the broker before it is drawn.
STORIES = {
    "commit": """
        use tv2
        topic   orders 1
        topic   payments 1
        init    t1                         -> pid=1 epoch=0    Empty
        produce t1 1/0 0 orders-0 placed   -> offset=0         Ongoing
        produce t1 1/0 0 payments-0 due    -> offset=0         Ongoing
        end     t1 1/0 commit              -> pid=1 epoch=1    CompleteCommit
        """,
    "tv1": """
        use tv1
        topic   orders 1
        init    t1                         -> pid=1 epoch=0    Empty
        add     t1 1/0 orders-0            -> NONE             Ongoing
        produce t1 1/0 0 orders-0 a        -> offset=0         Ongoing
        end     t1 1/0 commit              -> NONE             CompleteCommit
        add     t1 1/0 orders-0            -> NONE             Ongoing
        produce t1 1/0 1 orders-0 b        -> offset=2         Ongoing
        end     t1 1/0 commit              -> NONE             CompleteCommit
        """,
    "tv2": """
        use tv2
        topic   orders 1
        init    t1                         -> pid=1 epoch=0    Empty
        produce t1 1/0 0 orders-0 a        -> offset=0         Ongoing
        end     t1 1/0 commit              -> pid=1 epoch=1    CompleteCommit
        produce t1 1/1 0 orders-0 b        -> offset=2         Ongoing
        end     t1 1/1 commit              -> pid=1 epoch=2    CompleteCommit
        """,
    "late-tv1": """
        use tv1
        topic   orders 1
        init    t1                         -> pid=1 epoch=0    Empty
        add     t1 1/0 orders-0            -> NONE             Ongoing
        produce t1 1/0 0 orders-0 a        -> offset=0         Ongoing
        end     t1 1/0 commit              -> NONE             CompleteCommit   # The retry arrives first.
        add     t1 1/0 orders-0            -> NONE             Ongoing
        produce t1 1/0 1 orders-0 b        -> offset=2         Ongoing
        end     t1 1/0 commit              -> NONE             CompleteCommit   # The first EndTxn arrives, late.
        end     t1 1/0 abort               -> INVALID_TXN_STATE CompleteCommit  # The client wanted to abort b.
        """,
    "late-tv2": """
        use tv2
        topic   orders 1
        init    t1                         -> pid=1 epoch=0    Empty
        produce t1 1/0 0 orders-0 a        -> offset=0         Ongoing
        end     t1 1/0 commit              -> pid=1 epoch=1    CompleteCommit   # The retry arrives first.
        produce t1 1/1 0 orders-0 b        -> offset=2         Ongoing
        end     t1 1/0 commit              -> PRODUCER_FENCED  Ongoing          # The first EndTxn arrives, late.
        end     t1 1/1 abort               -> pid=1 epoch=2    CompleteAbort    # The client aborts b.
        """,
    "zombie": """
        use tv2
        topic   orders 1
        init    t1                         -> pid=1 epoch=0          Empty
        produce t1 1/0 0 orders-0 old      -> offset=0               Ongoing
        init    t1                         -> pid=1 epoch=2          Empty      # The open transaction is aborted.
        produce t1 1/0 1 orders-0 zombie   -> INVALID_PRODUCER_EPOCH Empty      # The first producer wakes up.
        end     t1 1/0 commit              -> PRODUCER_FENCED        Empty
        produce t1 1/2 0 orders-0 new      -> offset=2               Ongoing
        end     t1 1/2 commit              -> pid=1 epoch=3          CompleteCommit
        """,
}
REQUESTS = {"init": "InitProducerId", "add": "AddPartitionsToTxn", "produce": "Produce", "end": "EndTxn"}


def story(name: str) -> Transcript:
    head, *lines = (text for line in STORIES[name].splitlines() if (text := line.partition("#")[0].strip()))
    versions = {"use tv1": TV1_REQUESTS, "use tv2": TV2_REQUESTS}[head]
    return Transcript(name, versions=versions, steps=[parse_step(n, line) for n, line in enumerate(lines)])


def sequence(name: str) -> Iterator[str]:
    """A story as a sequence diagram, with a participant for every epoch that InitProducerId gave out."""
    run(story(name), PureBroker())
    lines: list[str] = []
    granted: list[int] = []
    state_before = ""
    for raw in STORIES[name].splitlines():
        text, _, comment = raw.partition("#")
        if not text.strip() or text.split()[0] not in REQUESTS:
            continue
        step = parse_step(0, text)
        assert step.expected is not None
        *reply, state = step.expected
        if step.command == "init":
            granted.append(int(reply[-1].removeprefix("epoch=")))
        who = _sender(step, granted)
        if comment:
            lines.append(f"    Note over B: {comment.strip().rstrip('.')}")
        lines.append(f"    P{who}->>B: {_request(step)}")
        lines.append(f"    B-->>P{who}: {' '.join(reply).replace('NONE', 'success')}")
        if state != state_before:
            lines.append(f"    Note right of B: {state}")
        state_before = state
    yield from ("```mermaid", "sequenceDiagram")
    names = ["producer"] if len(granted) == 1 else [f"producer with epoch {epoch}" for epoch in granted]
    yield from (f"    participant P{n} as {name}" for n, name in enumerate(names))
    yield from ("    participant B as broker", *lines, "```")


def _sender(step: Step, granted: list[int]) -> int:
    """Which producer sent it: the newest whose epoch is not above the one in the request."""
    if step.command == "init":
        return len(granted) - 1
    epoch = int(step.words[1].partition("/")[2])
    return max(n for n, given in enumerate(granted) if given <= epoch)


def _request(step: Step) -> str:
    name = REQUESTS[step.command]
    if step.command == "init":
        return name
    what = {"add": step.words[2], "produce": step.words[-1], "end": step.words[-1]}[step.command]
    return f"{name} {what}, epoch {step.words[1].partition('/')[2]}"


# --- a commit, watched ------------------------------------------------------------------------------------------

Event = tuple[str, str]  # Where it happens, and what.
DISK = {"fencepost.flush.on.commit": "true", "transaction.state.log.num.partitions": "1"}
NO_DISK = DISK | {"fencepost.flush.on.commit": "false"}


class WatchedLog(MemoryLog):
    """Notes every append."""

    events: list[Event]
    topic: str
    name: str

    def append(self, batch: Buffer, base_offset: int, last_offset: int, max_timestamp: int) -> int:
        self.events.append((self.name, self._what(bytes(batch))))
        return super().append(batch, base_offset, last_offset, max_timestamp)

    def _what(self, stored: bytes) -> str:
        [(header, batch)] = iter_batches(stored)
        if header.is_control:
            marker = decode_marker(batch)
            assert marker is not None
            return f"{'COMMIT' if marker.commit else 'ABORT'} marker"
        if self.topic != "__transaction_state":
            return "data"
        [record] = iter_records(batch)
        found = decode_value(decode_key(record.key or b"") or "", record.value or b"")
        assert found is not None
        return kafka_name(found.state)


class WatchedStorage(MemoryStorage):
    """Notes every append to its logs and every sync that was asked for."""

    def __init__(self, events: list[Event]) -> None:
        super().__init__()
        self.events = events

    def open_log(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> Log:
        if (topic, partition) not in self._logs:
            log = WatchedLog(self, config)
            log.topic, log.name, log.events = topic, f"{topic}-{partition}", self.events
            self._logs[topic, partition] = (topic_id, log)
        return super().open_log(topic, partition, topic_id, config)

    def sync(self, logs: list[Log], then: Callable[[], None]) -> None:
        for log in logs:
            assert isinstance(log, WatchedLog)
            self.events.append((log.name, "sync"))
        super().sync(logs, then)


class WatchedBroker(PureBroker):
    """Notes the replies to Produce and EndTxn, and what was written and synced for them."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.events: list[Event] = []
        super().__init__(settings, WatchedStorage(self.events))

    def call(self, request: Message, version: int, client_id: str | None = CLIENT_ID) -> Any:
        reply = super().call(request, version, client_id)
        name = type(request).__name__.removesuffix("Request")
        if name in ("Produce", "EndTxn"):
            self.events.append(("reply", name))
        elif name == "InitProducerId":
            self.events.clear()  # The transaction begins after this.
        return reply


def watch_commit(settings: Mapping[str, str]) -> list[Event]:
    """Everything that a transaction over two partitions writes and syncs, from the first Produce to the last reply."""
    broker = WatchedBroker(settings)
    run(story("commit"), broker)
    return _in_order(broker.events)


def _in_order(events: list[Event]) -> list[Event]:
    """Equal steps on several partitions have no order of their own: sort them."""
    ordered: list[Event] = []
    for event in events:
        at = len(ordered)
        while at > 0 and ordered[at - 1][1] == event[1] and ordered[at - 1][0] > event[0] and event[0] != "reply":
            at -= 1
        ordered.insert(at, event)
    return ordered


def commit_sequence() -> Iterator[str]:
    """The events of a commit with `fencepost.flush.on.commit=true`, as a sequence diagram."""
    events = watch_commit(DISK)
    logs = sorted({where for where, _ in events if where != "reply"}, key=lambda name: (name.startswith("__"), name))
    ids = {name: f"L{n}" for n, name in enumerate(logs)}
    yield from ("```mermaid", "sequenceDiagram", "    participant P as producer", "    participant B as broker")
    yield from (f"    participant {ids[name]} as {name}" for name in logs)
    requests = iter(name for where, name in events if where == "reply")
    request: str | None = None
    for where, what in events:
        if request is None:
            request = next(requests)
            yield f"    P->>B: {request}"
        if where == "reply":
            yield f"    B-->>P: {what} succeeds"
            request = None
        elif what == "sync":
            yield f"    Note over {ids[where]}: sync to disk"
        else:
            yield f"    B->>{ids[where]}: append {what}"
    yield "```"


# --- transcripts ------------------------------------------------------------------------------------------------


def paragraphs(name: str, wanted: str) -> list[str]:
    """The lines of a transcript, or of its paragraphs (`2` or `2-3`, counted from 1)."""
    parts = (TRANSCRIPTS / f"{name}.txt").read_text().strip().split("\n\n")
    if wanted:
        first, _, last = wanted.partition("-")
        parts = parts[int(first) - 1 : int(last or first)]
    return "\n\n".join(parts).splitlines()


def transcript(name: str, wanted: str = "") -> Iterator[str]:
    yield f"From [`{name}.txt`](../../tests/transcripts/{name}.txt):"
    yield from ("", "```text", *paragraphs(name, wanted), "```")


def decisions() -> Iterator[str]:
    """The decisions, by their titles; for the index."""
    for page in sorted((ROOT / "docs/adr").glob("*.md")):
        yield f"- [{page.read_text().splitlines()[0].removeprefix('# ')}](adr/{page.name})"


def anomaly_kinds() -> Iterator[str]:
    """The kinds of anomalies that the verifier looks for, the worst first."""
    yield from ("| name | | what it means | whose mistake it usually is |", "|---|---|---|---|")
    for kind in KINDS.values():
        note = " Allowed: it is counted only." if kind.is_allowed else ""
        yield f"| `{kind.name}` | {kind.title} | {kind.meaning}{note} | {kind.mistake} |"


BLOCKS: dict[str, Callable[..., Iterator[str]]] = {
    "transaction-states": txn_states,
    "classic-group-states": group_states,
    "end-txn": end_txn_table,
    "commit-sequence": commit_sequence,
    "decisions": decisions,
    "transcript": transcript,
    "sequence": sequence,
    "anomaly-kinds": anomaly_kinds,
    "benchmark": report.block,
}


def refreshed(text: str) -> str:
    """The page with every generated block as it should be."""

    def block(match: re.Match[str]) -> str:
        name, *arguments = match[2].split()
        return match[1] + "\n" + "\n".join(BLOCKS[name](*arguments)) + "\n\n" + match[4]

    return _BLOCK.sub(block, text)


def pages() -> list[Path]:
    """Every document with a generated block."""
    return sorted(page for page in (ROOT / "docs").rglob("*.md") if "<!-- generated: " in page.read_text())


def main() -> None:
    for page in pages():
        before = page.read_text()
        after = refreshed(before)
        if after != before:
            page.write_text(after)
        print(f"{'wrote' if after != before else 'is up to date:'} {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
