"""The demos that Learn plays step by step: those of `fencepost demo`, each on a broker of its own."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from fencepost.demo.report import DemoFailed, Report

if TYPE_CHECKING:
    from fencepost.web.learn.stepping import DemoRun

NEEDS_CLIENT = "not installed: confluent-kafka\n\nhint: pip install 'fencepost[demo]'"
ATTEMPTS = 3
COMMIT_PROB = 0.7
SEED = 8  # A commit, an abort, a commit.
READ_COUNT = 100
IDLE_S = 1.0
SETTLEMENTS = 1000


class Demo(NamedTuple):
    name: str
    title: str
    about: str
    play: Callable[[DemoRun], Report]
    why_not: Callable[[], str | None]  # Why it cannot play on this machine.


def _client_missing() -> str | None:
    return NEEDS_CLIENT if find_spec("confluent_kafka") is None else None


@cache
def _spark_missing() -> str | None:
    from fencepost.demo.refunds.requirements import check_pyspark, find_java

    if missing := _client_missing():
        return missing
    try:
        check_pyspark()
        find_java()
    except DemoFailed as e:
        return f"{e}\n\nhint: {e.hint}"
    return None


def _brew(run: DemoRun) -> Report:
    from fencepost.demo.brew import play_brew

    with run.broker() as broker:
        return play_brew(broker.bootstrap_servers, ATTEMPTS, COMMIT_PROB, SEED, run.tell, run)


def _zombie(run: DemoRun) -> Report:
    from fencepost.demo.zombie import play_zombie

    with run.broker() as broker:
        return play_zombie(broker.bootstrap_servers, run.tell, run)


def _isolation(run: DemoRun) -> Report:
    from fencepost.demo.isolation import SETTINGS, play_isolation

    with run.broker(SETTINGS) as broker:
        return play_isolation(broker.bootstrap_servers, run.transaction_timeout_ms, run.tell, run)


def _recovery(run: DemoRun) -> Report:
    from fencepost.demo.recovery import play_recovery

    return play_recovery(run.tell, run)


def _read(run: DemoRun) -> Report:
    from fencepost.demo.brew import toss, write_orders
    from fencepost.demo.orders import new_run_id
    from fencepost.demo.read import play_read
    from fencepost.demo.topics import TOPICS, Topics

    with run.broker() as broker:
        servers, run_id = broker.bootstrap_servers, new_run_id()
        Topics(servers).create()
        tosses = toss(run_id, ATTEMPTS, COMMIT_PROB, random.Random(SEED))
        write_orders(servers, run_id, tosses, random.Random(SEED), run.tell)
        run.step(
            f"{ATTEMPTS} orders were written, each in a transaction; {sum(a.commit for a in tosses)} were committed."
        )
        with run.tapped(broker) as tapped:
            play_read(tapped, TOPICS, False, READ_COUNT, IDLE_S, lambda line: run.step(f"read_uncommitted gets {line}"))
            return play_read(
                tapped, TOPICS, True, READ_COUNT, IDLE_S, lambda line: run.step(f"read_committed gets {line}")
            )


def _refunds(run: DemoRun) -> Report:
    from fencepost.demo.refunds.story import Options, play_refunds

    report, _ = play_refunds(Options(SETTLEMENTS, SEED), run.step, run.count, run)
    return report


DEMOS = {
    demo.name: demo
    for demo in (
        Demo(
            "brew",
            "An order, a payment and a shipment: all of them or none",
            "A producer writes three orders, each to three topics in one transaction. Two commit, one aborts. Then two "
            "readers count what they see.",
            _brew,
            _client_missing,
        ),
        Demo(
            "zombie",
            "Two processes, one transactional id: the first is fenced",
            "A process pauses in the middle of a transaction, another one takes its id over. When the first wakes up, "
            "the coordinator refuses its commit.",
            _zombie,
            _client_missing,
        ),
        Demo(
            "isolation",
            "An open transaction holds back readers until its timeout",
            "One producer leaves a transaction open. read_committed readers wait behind it, also for records that are "
            "committed, until the timeout. The page moves the clock of the broker, so that you need not wait.",
            _isolation,
            _client_missing,
        ),
        Demo(
            "recovery",
            "The broker is killed between a decision and its markers",
            "The decision is one record. After it is written, the outcome is fixed, even if broker and client crash. "
            "Three acts: after a decision to commit, after a decision to abort, and before any decision.",
            _recovery,
            _client_missing,
        ),
        Demo(
            "read",
            "What a reader gets, record by record",
            "The orders of brew, read once with read_uncommitted and once with read_committed.",
            _read,
            _client_missing,
        ),
        Demo(
            "refunds",
            "A Spark pipeline that is killed and still makes every refund once",
            "A Spark job writes refunds and audit rows in one transaction for each micro-batch. The driver is killed "
            "twice and the broker once. Spark runs on between two steps, so a pause holds back the story, not Spark. "
            "This takes a minute or more.",
            _refunds,
            _spark_missing,
        ),
    )
}
