"""Stop or pause a node of a broker under load, once a second, and look for lost data.

Usage: python -m scripts.crash_nodes [--nodes N] [--seconds N] [--seed N]

The clients are those of `scripts.crash`. Every second the node that is down comes back, another one is stopped or
paused, and a leader and a coordinator move. The checkers of `fencepost verify` judge the history at the end, and again
after a restart with kill -9.

The seed decides what is done, but not the timing, so two runs of a seed are similar, not equal.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from fencepost.cli.streams import say
from fencepost.testing import Broker
from fencepost.verify.workload.plan import LIBRDKAFKA, ClientPlan
from tests.crash.carrying_out import carry_out
from tests.crash.workload import CLIENTS, SETTINGS, TOPICS, UNCOMMITTED_READER, Lost, Workload

EVERY_S = 1.0
REPORT_EVERY_S = 60.0
# A paused node answers nothing, and a client waits that long for each answer.
PATIENCE_MS = 1000
ABORT_LATE = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}


def more_settings(client: ClientPlan) -> dict[str, Any]:
    """A copier is a static member: its successor takes its place in the group at once.

    A new coordinator waits for all members that it has loaded, up to their session timeout. If it moves more often than
    that, a member that was killed would keep the group from ever being complete.
    """
    if client.kind != LIBRDKAFKA:
        return {"request.timeout.ms": str(PATIENCE_MS), "socket.connection.setup.timeout.ms": str(PATIENCE_MS)}
    static = {"group.instance.id": client.name} if client.role == "copier" else {}
    return {"socket.timeout.ms": PATIENCE_MS, **static}


# No power is lost here, so a reader of uncommitted records can be trusted too.
NODE_CLIENTS = (*CLIENTS, UNCOMMITTED_READER)
IDS = [client.transactional_id for client in NODE_CLIENTS if client.transactional_id]


class Run:
    def __init__(self, folder: Path, nodes: int, seconds: float, seed: int) -> None:
        self.seconds = seconds
        self.seed = seed
        self.rng = random.Random(seed)
        self.orders: Counter[str] = Counter()
        self.slowest_order_s = 0.0
        self.broker = Broker(brokers=nodes, data=folder / "data", settings=SETTINGS | ABORT_LATE)
        self.workload = Workload(self.broker, folder, seed, NODE_CLIENTS, more_settings)
        self._up = list(range(1, nodes + 1))
        self._down: tuple[str, int] | None = None

    def go(self) -> None:
        """Raises Lost, with the evidence."""
        self.broker.start()
        self.workload.create_topics()
        self.workload.start()
        began = due = reported = time.monotonic()
        while (now := time.monotonic()) - began < self.seconds:
            self._fail_over()
            self.workload.check()
            if now - reported >= REPORT_EVERY_S:
                reported = now
                say(f"{now - began:4.0f} s: {self.orders.total()} orders, {self.workload.noted()}")
            due = max(due + EVERY_S, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
        self._bring_back()
        self.workload.rest()
        self.broker.kill()
        self.broker.start()
        self.workload.read_all()
        if "Traceback" in self.broker.log:
            raise Lost(f"the broker has a bug:\n{self.broker.log}")

    def close(self) -> None:
        self.workload.kill()
        self.broker.kill()

    def _fail_over(self) -> None:
        self._bring_back()
        node_id = self.rng.choice(self._up)
        how = self.rng.choice(["stop", "pause"])
        self._order(how, node_id)
        self._up.remove(node_id)
        self._down = how, node_id
        topic = self.rng.choice(list(TOPICS))
        self._order("move_leader", topic, self.rng.randrange(TOPICS[topic]), self.rng.choice(self._up))
        self._order("move_coordinator", self.rng.choice(IDS), self.rng.choice(self._up))

    def _bring_back(self) -> None:
        if self._down is not None:
            how, node_id = self._down
            self._order("start" if how == "stop" else "resume", node_id)
            self._up.append(node_id)
            self._down = None

    def _order(self, order: str, *given: str | int) -> None:
        began = time.monotonic()
        getattr(self.broker.nodes, order)(*given)
        self.slowest_order_s = max(self.slowest_order_s, time.monotonic() - began)
        self.orders[order] += 1
        self.workload.note_fault(" ".join([order.replace("_", "-"), *map(str, given)]))


def main() -> int:
    options = parse_arguments()
    folder = Path(tempfile.mkdtemp(prefix="fencepost-crash-"))
    say(f"seed {options.seed}: {options.nodes} nodes, {options.seconds:g} s")
    run = Run(folder, options.nodes, options.seconds, options.seed)
    exit_code = carry_out(run, folder, options.seed, lambda: f"after {run.orders.total()} orders")
    if exit_code == 0:
        report(run)
    return exit_code


def report(run: Run) -> None:
    print(f"transactions: {run.workload.counts()}")
    print("orders: " + ", ".join(f"{count} {order.replace('_', '-')}" for order, count in sorted(run.orders.items())))
    hung = [fault.what for fault in run.workload.faults if "noted nothing" in fault.what]
    print(f"clients that hung: {'; '.join(hung) or 'none'}")
    print(f"the slowest order took {run.slowest_order_s:.2f} s")
    print(f"seed {run.seed}, {run.seconds:g} s, 2 checks of everything")
    print("nothing lost")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.crash_nodes",
        description=(__doc__ or "").partition("\n")[0],
        epilog="example: make crash NODES=3 SECONDS=300",
    )
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 1 << 31))
    options = parser.parse_args()
    if options.nodes < 2:
        parser.error(f"--nodes is {options.nodes}, expected 2 or more: the last node cannot be stopped")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
