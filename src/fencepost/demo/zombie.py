"""Two processes with one transactional id. The first stands still, the second takes over, the first wakes up.

What it wants to commit then must not count: the coordinator raised the epoch when the second one registered, and
refuses the first. It says FENCED and ends; to register again would fence its successor, and so on for ever.
"""

from __future__ import annotations

import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fencepost.demo.report import Check, DemoFailed, Progress, Report, Section
from fencepost.demo.topics import Topics
from fencepost.demo.zombie_service import EXIT_FENCED, FENCED, TOPIC, Fenced, Worker
from fencepost.testing.child import child_environment, python_module

# What both terminals say, so that nobody has to copy an id from one to the other.
SHARED_ID = "brew-zombie"
SUCCESSOR_TRANSACTIONS = 5
INTERVAL_S = 1.0


def play_zombie(bootstrap_servers: str, progress: Progress) -> Report:
    transactional_id = f"{SHARED_ID}-{uuid.uuid4().hex[:8]}"
    topics = Topics(bootstrap_servers, [TOPIC])
    topics.create()
    start = topics.await_stable()
    with process(bootstrap_servers, transactional_id, "1") as (first, ask_first):
        answers = [ask_first("commit"), ask_first("commit"), ask_first("open")]
        progress(f"process {first.pid}: two transactions committed, a third is open; now it stands still")
        with process(bootstrap_servers, transactional_id, "2") as (second, ask_second):
            progress(f"process {second.pid}: took over {transactional_id}")
            answers += [ask_second("commit"), ask_second("commit")]
            progress(f"process {second.pid}: two transactions committed")
            woken = ask_first("end")
            progress(f"process {first.pid}: woke up, wants to commit its third: {woken}")
            exit_code = first.wait(30)
            answers.append(ask_second("commit"))
            progress(f"process {second.pid}: one more transaction committed")
    topics.await_stable()
    committed, uncommitted = (
        Counter(record.key for record in topics.read(start, committed=level)) for level in (True, False)
    )
    section = Section(
        "The zombie is fenced",
        [
            "Both processes have the same transactional id.",
            "When the second registers it, its epoch goes up, and what the first left open is aborted.",
            "The first learns of it when it wakes up: its commit is refused, for good.",
            "Its successor goes on as if nothing had been.",
        ],
        ("process", "committed transactions", "read_committed", "read_uncommitted"),
        [(f"{role}", n, committed[role], uncommitted[role]) for role, n in (("1", 2), ("2", 3))],
        [
            Check("transactions that went through", 5, answers.count("committed"), answers),
            Check("the first process is told", FENCED, woken.split(" ")[0], [woken]),
            Check("and ends", EXIT_FENCED, exit_code),
            Check("read_committed sees of the first process", 2, committed["1"]),
            Check("read_committed sees of the second process", 3, committed["2"]),
            Check("read_uncommitted sees of the first process: its aborted one too", 3, uncommitted["1"]),
        ],
    )
    facts = {"bootstrap_servers": bootstrap_servers, "transactional_id": transactional_id, "zombie_says": woken}
    return Report("zombie", facts, [section])


def play_role(bootstrap_servers: str, role: int, progress: Progress) -> Report:
    """One of the two, in a terminal of its own: the first goes on until it is fenced, the second writes a few."""
    topics = Topics(bootstrap_servers, [TOPIC])
    topics.create()
    worker = Worker(bootstrap_servers, SHARED_ID, str(role))
    progress(f"role {role}: {SHARED_ID} is mine")
    if role == 1:
        progress("role 1: start `fencepost demo zombie --role 2` in another terminal; Ctrl-C ends this")
    written, said = 0, "not fenced"
    while role == 1 or written < SUCCESSOR_TRANSACTIONS:
        try:
            value = worker.open()
            worker.commit()
        except Fenced as reason:
            said = FENCED
            progress(f"role {role}: {FENCED}: another process has {SHARED_ID} now ({reason})")
            break
        written += 1
        progress(f"role {role}: committed {value}")
        time.sleep(INTERVAL_S)
    ends = FENCED if role == 1 else "not fenced"
    section = Section(
        f"Role {role}",
        [f"{written} transactions committed as {SHARED_ID}."],
        checks=[Check("how it ended", ends, said)],
    )
    return Report("zombie", {"role": role, "transactional_id": SHARED_ID, "committed": written}, [section])


@contextmanager
def process(
    bootstrap_servers: str, transactional_id: str, role: str
) -> Iterator[tuple[subprocess.Popen[str], Callable[[str], str]]]:
    """A process that has registered the id, and how to ask it for something; it does not outlive the block."""
    with subprocess.Popen(
        python_module("fencepost.demo.zombie_service", bootstrap_servers, transactional_id, role),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
        # Ctrl-C is for the demo, which then ends its children.
        process_group=0,
    ) as started:

        def ask(word: str) -> str:
            assert started.stdin is not None
            assert started.stdout is not None
            if word:
                started.stdin.write(word + "\n")
                started.stdin.flush()
            answer = started.stdout.readline().strip()
            if not answer:
                raise DemoFailed(f"process {started.pid} ended without an answer", "its own words are above")
            return answer

        try:
            ask("")  # It is ready once it has its id.
            yield started, ask
        finally:
            started.kill()
