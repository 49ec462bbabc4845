"""Writes orders, each with payment and shipment in one transaction, and commits or aborts each at random.

Then compares three views of the log: read_committed sees only the committed orders, read_uncommitted sees all orders,
and the end offsets also count the markers, which consumers never receive.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

from fencepost.demo.orders import OrderProducer, new_run_id, records_of_order
from fencepost.demo.report import Check, Progress, Report, Section
from fencepost.demo.stage import COMMAND_LINE, Stage
from fencepost.demo.topics import TOPICS, Offsets, Seen, Topics

EVIDENCE_LINES = 10


class Attempt(NamedTuple):
    number: int
    order_id: str
    commit: bool


def toss(run_id: str, attempts: int, commit_prob: float, rng: random.Random) -> list[Attempt]:
    width = len(str(attempts))
    return [Attempt(n, f"{run_id}-{n:0{width}}", rng.random() < commit_prob) for n in range(1, attempts + 1)]


def play_brew(
    bootstrap_servers: str,
    attempts: int,
    commit_prob: float,
    seed: int,
    progress: Progress,
    stage: Stage = COMMAND_LINE,
) -> Report:
    run_id = new_run_id()
    topics = Topics(bootstrap_servers)
    topics.create()
    start = topics.await_stable()
    tosses = toss(run_id, attempts, commit_prob, random.Random(seed))
    write_orders(bootstrap_servers, run_id, tosses, random.Random(seed), progress, stage)

    end = topics.await_stable()
    committed, uncommitted = topics.read(start, committed=True), topics.read(start, committed=False)
    facts = {
        "run": run_id,
        "bootstrap_servers": bootstrap_servers,
        "seed": seed,
        "attempts": attempts,
        "commits": sum(a.commit for a in tosses),
        "aborts": sum(not a.commit for a in tosses),
        "orders": [{"order_id": a.order_id, "end": "commit" if a.commit else "abort"} for a in tosses],
    }
    section = section_of_readers(tosses, start, end, committed, uncommitted)
    section.sentences.append(f"To repeat these decisions, use --seed {seed}.")
    return Report("brew", facts, [section])


def write_orders(
    bootstrap_servers: str,
    run_id: str,
    tosses: list[Attempt],
    rng: random.Random,
    progress: Progress,
    stage: Stage = COMMAND_LINE,
) -> None:
    timeout = {"transaction.timeout.ms": stage.transaction_timeout_ms}
    producer = OrderProducer(bootstrap_servers, transactional_id=run_id, **timeout)
    producer.init_transactions()
    stage.step(
        f"The producer registers {run_id}. The coordinator gives it a producer id and an epoch; it would now refuse "
        "every earlier producer with the same transactional id."
    )
    width = len(str(len(tosses)))
    for number, order_id, commit in tosses:
        producer.begin()
        stage.step(
            f"The producer begins a transaction for {order_id}. This sends no request: the coordinator learns of the "
            "transaction together with its first partition."
        )
        producer.send(records_of_order(order_id, rng), order_id)
        stage.step(
            f"Order, payment and shipment of {order_id} are in the logs of three partitions. The transaction is "
            "Ongoing: read_uncommitted readers see the records, read_committed readers wait."
        )
        if commit:
            producer.commit()
            stage.step(
                f"The producer commits {order_id}. The coordinator wrote its decision (PrepareCommit), a COMMIT marker "
                "on each partition, and CompleteCommit. Now every reader sees the three records."
            )
        else:
            producer.abort()
            stage.step(
                f"The producer aborts {order_id}. The coordinator wrote its decision (PrepareAbort), an ABORT marker "
                "on each partition, and CompleteAbort. The records stay in the log, and read_committed readers skip "
                "them."
            )
        progress(f"[{number:>{width}}/{len(tosses)}] {'commit' if commit else 'abort '} {order_id}")


def section_of_readers(
    tosses: list[Attempt], start: Offsets, end: Offsets, committed: list[Seen], uncommitted: list[Seen]
) -> Section:
    """Compare the records that each reader saw with the records that `tosses` make it see."""
    commits = sum(a.commit for a in tosses)
    attempts, aborts = len(tosses), len(tosses) - commits
    moved = {topic: sum(end[tp] - start[tp] for tp in end if tp[0] == topic) for topic in TOPICS}
    section = Section(
        "What each reader sees",
        [
            f"{attempts} transactions of three records each: {commits} committed, {aborts} aborted.",
            "read_committed gets the records of committed transactions, read_uncommitted gets all records.",
            "Each transaction, even an aborted one, also leaves a marker on every partition that it wrote to.",
            "A marker occupies an offset, but consumers never receive it.",
        ],
        ("topic", "read_committed", "read_uncommitted", "markers", "end offset moved by"),
    )
    for topic in TOPICS:
        kept, readable = (sum(record.topic == topic for record in seen) for seen in (committed, uncommitted))
        section.rows.append((topic, kept, readable, moved[topic] - readable, moved[topic]))
    wrong_committed = differences([a.order_id for a in tosses if a.commit], committed)
    wrong_uncommitted = differences([a.order_id for a in tosses], uncommitted)
    wrong_moves = [f"{topic} moved by {by}, expected {attempts * 2}" for topic, by in moved.items()]
    section.checks = [
        Check(f"read_committed sees commits x 3 records: {commits} x 3", commits * 3, len(committed), wrong_committed),
        Check("no committed order is missing or duplicated, and no aborted order is seen", [], wrong_committed),
        Check(
            f"read_uncommitted sees attempts x 3 records: {attempts} x 3",
            attempts * 3,
            len(uncommitted),
            wrong_uncommitted,
        ),
        Check(
            f"the end offsets moved by records and markers: {attempts} x 3 + {attempts} x 3",
            attempts * 6,
            sum(moved.values()),
            wrong_moves,
        ),
    ]
    return section


def differences(order_ids: list[str], seen: list[Seen]) -> list[str]:
    """Missing and unexpected records, if each topic should contain every order exactly once."""
    due = Counter((topic, order_id) for topic in TOPICS for order_id in order_ids)
    found = Counter((record.topic, record.key) for record in seen)
    wrong = [f"missing in {topic}: {order_id}" for topic, order_id in sorted(due - found)]
    too_many = found - due
    wrong += [f"not expected: {record}" for record in seen if (record.topic, record.key) in too_many]
    more = len(wrong) - EVIDENCE_LINES
    return [*wrong[:EVIDENCE_LINES], f"and {more} more"] if more > 0 else wrong
