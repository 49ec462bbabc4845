"""Two processes with one transactional id. The first pauses, the second takes over, the first resumes.

The commit of the first process must be refused: the coordinator raised the epoch when the second process registered
the id. The first process prints FENCED and exits. If it registered the id again, it would fence the second process,
which could register it again, and so on.
"""

from __future__ import annotations

import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fencepost.child import start_module
from fencepost.demo.report import Check, DemoFailed, Progress, Report, Section
from fencepost.demo.stage import COMMAND_LINE, Stage
from fencepost.demo.topics import Topics
from fencepost.demo.zombie_service import EXIT_FENCED, FENCED, TOPIC, Worker, WorkerFenced

# Both terminals use this id, so that users need not copy an id.
SHARED_ID = "brew-zombie"
SUCCESSOR_TRANSACTIONS = 5
INTERVAL_S = 1.0


def play_zombie(bootstrap_servers: str, progress: Progress, stage: Stage = COMMAND_LINE) -> Report:
    transactional_id = f"{SHARED_ID}-{uuid.uuid4().hex[:8]}"
    topics = Topics(bootstrap_servers, [TOPIC])
    topics.create()
    start = topics.await_stable()
    timeout_ms = stage.transaction_timeout_ms
    with process(bootstrap_servers, transactional_id, "1", timeout_ms) as (first, ask_first):
        stage.step(f"Process 1 registers {transactional_id} and gets its first epoch.")
        answers = [ask_first("commit"), ask_first("commit")]
        stage.step("Process 1 writes and commits two transactions.")
        answers.append(ask_first("open"))
        stage.step("Process 1 begins a third transaction, writes a record, and pauses: nothing ends the transaction.")
        progress(f"process {first.pid}: two transactions committed, a third is open; the process pauses")
        with process(bootstrap_servers, transactional_id, "2", timeout_ms) as (second, ask_second):
            progress(f"process {second.pid}: took over {transactional_id}")
            stage.step(
                "Process 2 registers the same transactional id. The coordinator aborts the open transaction of "
                "process 1 and raises the epoch: process 1 is fenced, and does not know it yet."
            )
            answers += [ask_second("commit"), ask_second("commit")]
            progress(f"process {second.pid}: two transactions committed")
            stage.step("Process 2 writes and commits two transactions with its newer epoch.")
            woken = ask_first("end")
            progress(f"process {first.pid}: resumed and tried to commit the third: {woken}")
            stage.step(
                "Process 1 wakes up and tries to commit. Its epoch is old, so the coordinator refuses, and the "
                f"process ends: {woken}"
            )
            exit_code = first.wait(30)
            answers.append(ask_second("commit"))
            progress(f"process {second.pid}: one more transaction committed")
            stage.step("Process 2 commits one more transaction, undisturbed.")
    topics.await_stable()
    committed, uncommitted = (
        Counter(record.key for record in topics.read(start, committed=level)) for level in (True, False)
    )
    section = Section(
        "The zombie is fenced",
        [
            "Both processes use the same transactional id.",
            "When the second process registers the id, the coordinator raises the epoch.",
            "It also aborts the transaction that the first process left open.",
            "When the first process resumes, the coordinator refuses its commit. A retry cannot succeed.",
            "The second process continues undisturbed.",
        ],
        ("process", "committed transactions", "read_committed", "read_uncommitted"),
        [(f"{role}", n, committed[role], uncommitted[role]) for role, n in (("1", 2), ("2", 3))],
        [
            Check("committed transactions of both processes", 5, answers.count("committed"), answers),
            Check("the first process receives the error", FENCED, woken.split(" ")[0], [woken]),
            Check("exit code of the first process", EXIT_FENCED, exit_code),
            Check("records of the first process that read_committed sees", 2, committed["1"]),
            Check("records of the second process that read_committed sees", 3, committed["2"]),
            Check("records of the first process that read_uncommitted sees, with the aborted one", 3, uncommitted["1"]),
        ],
    )
    facts = {"bootstrap_servers": bootstrap_servers, "transactional_id": transactional_id, "zombie_says": woken}
    return Report("zombie", facts, [section])


def play_role(bootstrap_servers: str, role: int, progress: Progress) -> Report:
    """Run one of the two processes in its own terminal. Role 1 writes until it is fenced, role 2 writes a few times."""
    topics = Topics(bootstrap_servers, [TOPIC])
    topics.create()
    worker = Worker(bootstrap_servers, SHARED_ID, str(role))
    progress(f"role {role}: registered {SHARED_ID}")
    if role == 1:
        progress("role 1: start `fencepost demo zombie --role 2` in another terminal; Ctrl-C ends role 1")
    written, said = 0, "not fenced"
    while role == 1 or written < SUCCESSOR_TRANSACTIONS:
        try:
            value = worker.open()
            worker.commit()
        except WorkerFenced as reason:
            said = FENCED
            progress(f"role {role}: {FENCED}: another process has registered {SHARED_ID} ({reason})")
            break
        written += 1
        progress(f"role {role}: committed {value}")
        time.sleep(INTERVAL_S)
    ends = FENCED if role == 1 else "not fenced"
    section = Section(
        f"Role {role}",
        [f"{written} transactions committed as {SHARED_ID}."],
        checks=[Check("outcome of this process", ends, said)],
    )
    return Report("zombie", {"role": role, "transactional_id": SHARED_ID, "committed": written}, [section])


@contextmanager
def process(
    bootstrap_servers: str, transactional_id: str, role: str, timeout_ms: int
) -> Iterator[tuple[subprocess.Popen[str], Callable[[str], str]]]:
    """Yield a process that has registered the id, and a function that sends it a command. The end kills the process."""
    arguments = (bootstrap_servers, transactional_id, role, str(timeout_ms))
    with start_module("fencepost.demo.zombie_service", *arguments) as started:

        def ask(word: str) -> str:
            assert started.stdin is not None
            assert started.stdout is not None
            if word:
                started.stdin.write(word + "\n")
                started.stdin.flush()
            answer = started.stdout.readline().strip()
            if not answer:
                raise DemoFailed(f"process {started.pid} ended without an answer", "its error output is above")
            return answer

        try:
            ask("")  # The process prints `ready` after it has registered the id.
            yield started, ask
        finally:
            started.kill()
