"""Kills the broker in the middle of a commit or an abort, and starts it again on the same folder.

The decision is one record in `__transaction_state`. Once the record is written, the outcome is fixed, even if broker
or client crash: the next start writes the missing markers. Before that the transaction stays open, and the client
decides the outcome when it repeats its call.
"""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

from fencepost.demo.disk import markers_on_disk, records_on_disk, states_on_disk
from fencepost.demo.orders import TIMEOUT_S, OrderProducer, records_of_order
from fencepost.demo.report import Check, Progress, Report, Section
from fencepost.demo.stage import COMMAND_LINE, Stage
from fencepost.demo.topics import TOPICS, Offsets, Topics
from fencepost.testing import Broker

TRANSACTIONAL_ID = "brew-order-service"
KILLED = -9


class Act(NamedTuple):
    title: str
    sentence: str
    crash_at: str
    commit: bool
    state_after_crash: str

    @property
    def is_decided(self) -> bool:
        return self.state_after_crash != "Ongoing"


ACTS = (
    Act(
        "Killed between the decision to commit and its markers",
        "PrepareCommit is on disk, so the transaction is committed: "
        "the next start writes the markers, even without the client.",
        "txn.prepare.after",
        True,
        "PrepareCommit",
    ),
    Act(
        "Killed between the decision to abort and its markers",
        "PrepareAbort is on disk: the next start writes the ABORT markers, and read_committed never sees a record.",
        "txn.prepare.after",
        False,
        "PrepareAbort",
    ),
    Act(
        "Killed before the decision",
        "The transaction is still open after the restart. "
        "The client received no reply and repeats its call; the broker then writes the decision.",
        "txn.prepare.before",
        True,
        "Ongoing",
    ),
)


@dataclass(frozen=True, slots=True)
class View:
    """The contents of the data folder and, if the broker is running, the number of records that a reader gets."""

    state: str
    records: int
    markers: list[str]
    read_committed: int | None

    def __str__(self) -> str:
        seen = "" if self.read_committed is None else f", {self.read_committed} visible"
        return f"{self.state}, {self.records} records, {_short(self.markers)} markers{seen}"

    def row(self, moment: str) -> tuple[str | int, ...]:
        readable = "no broker" if self.read_committed is None else self.read_committed
        return moment, self.state, self.records, _short(self.markers), readable


def _short(markers: list[str]) -> str:
    return ", ".join(f"{count} {marker}" for marker, count in Counter(markers).items()) or "no"


def play_recovery(progress: Progress, stage: Stage = COMMAND_LINE) -> Report:
    sections = []
    for act in ACTS:
        progress(act.title)
        with tempfile.TemporaryDirectory(prefix="fencepost-demo-") as folder:
            sections.append(play_act(act, Path(folder), progress, stage))
    return Report("recovery", {"transactional_id": TRANSACTIONAL_ID}, sections)


def play_act(act: Act, folder: Path, progress: Progress, stage: Stage = COMMAND_LINE) -> Section:
    verb, call_to_end = ("commit", OrderProducer.commit) if act.commit else ("abort", OrderProducer.abort)
    with Broker(data=folder, settings={"fencepost.crash.at": act.crash_at}) as broker:
        stage.enter(broker)
        topics = Topics(broker.bootstrap_servers)
        topics.create()
        start = topics.ends()
        config = {"reconnect.backoff.max.ms": 200, "transaction.timeout.ms": stage.transaction_timeout_ms}
        producer = OrderProducer(broker.bootstrap_servers, TRANSACTIONAL_ID, **config)
        producer.init_transactions()
        producer.begin()
        producer.send(records_of_order("order-1", Random(1)), "order-1")
        before = look(folder, topics, start)
        stage.step(f"{act.title}. An order, a payment and a shipment are written in one transaction, which is open.")

        progress(f"  an order, a payment and a shipment are written; the client calls {verb}")
        # The call returns only after the client has reached a broker again, so it runs in the background.
        answer = in_background(lambda: call_to_end(producer))
        exit_code = broker.wait_for_exit()
        killed = look(folder, None, start)
        stage.step(
            f"The client calls {verb}, and the broker is killed (kill -9) on its way. The last state on disk is "
            f"{killed.state}. {act.sentence}"
        )

        progress(f"  the broker was killed (exit code {exit_code}); it restarts on a port unknown to the client")
        client_knows, broker.port = broker.port, 0
        broker.settings.clear()
        broker.restart()
        elsewhere = Topics(broker.bootstrap_servers)
        if act.is_decided:
            elsewhere.await_stable()
        alone = look(folder, elsewhere, start)
        stage.step(
            f"The broker starts again, on a port that the client does not know, and reads its log. The state is now "
            f"{alone.state}, with {_short(alone.markers)} markers."
        )

        progress(f"  the broker restarts on port {client_knows} and answers the client's {verb}")
        broker.stop()
        broker.port = client_knows
        broker.start()
        answer.result(2 * TIMEOUT_S)
        topics.await_stable()
        after = look(folder, topics, start)
        stage.step(
            f"The broker is back on its old port, and the client's {verb} is answered. The state is {after.state}; "
            f"read_committed sees {after.read_committed} records."
        )
        everything = len(topics.read(start, committed=False))
    return section_of(act, exit_code, before, killed, alone, after, everything)


def in_background(call: Callable[[], None]) -> Future[None]:
    """Run `call` in a daemon thread: after Ctrl-C, the demo need not wait for the minutes of retries in the call."""
    answer: Future[None] = Future()

    def run() -> None:
        try:
            call()
        except Exception as error:
            answer.set_exception(error)
        else:
            answer.set_result(None)

    threading.Thread(target=run, daemon=True).start()
    return answer


def look(folder: Path, topics: Topics | None, start: Offsets) -> View:
    return View(
        states_on_disk(folder, TRANSACTIONAL_ID)[-1],
        records_on_disk(folder, TOPICS),
        markers_on_disk(folder, TOPICS),
        None if topics is None else len(topics.read(start, committed=True)),
    )


def section_of(
    act: Act, exit_code: int, before: View, killed: View, alone: View, after: View, everything: int
) -> Section:
    marker, complete = ("COMMIT", "CompleteCommit") if act.commit else ("ABORT", "CompleteAbort")
    visible = 3 if act.commit else 0
    ended = View(complete, 3, [marker] * 3, visible)
    return Section(
        act.title,
        [act.sentence],
        ("moment", "state on disk", "records", "markers", "read_committed sees"),
        [before.row("before the call"), killed.row("killed"), alone.row("restarted"), after.row("client reconnected")],
        [
            Check("before the call: the transaction is open", View("Ongoing", 3, [], 0), before),
            Check("the broker's exit code", KILLED, exit_code),
            Check("killed: the last state on disk", View(act.state_after_crash, 3, [], None), killed),
            Check(
                "restarted: before the client reconnects", ended if act.is_decided else View("Ongoing", 3, [], 0), alone
            ),
            Check("client reconnected: its call has succeeded", ended, after),
            Check("records that read_uncommitted sees at the end", 3, everything),
        ],
    )
