"""Stop or pause a node of a broker under load, once a second, and look for lost data.

Usage: python -m scripts.crash_nodes [--nodes N] [--seconds N] [--seed N]

The clients are those of `scripts.crash`. Every second the node that is down comes back, another one is stopped or
paused, and a leader and a coordinator move. The broker's answers to the clients are compared with the records of a
read_committed reader during the run, at its end, and after a restart with kill -9.

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
from tests.crash.carrying_out import carry_out
from tests.crash.killing import TOPICS
from tests.crash.workload import CLIENTS, SETTINGS, Clients, Lost, Workload

EVERY_S = 1.0
CHECK_EVERY_S = 60.0
# A paused node answers nothing, and a client waits that long for each answer.
IMPATIENT_WITH_NODES = {"socket.timeout.ms": 1000, "transaction.timeout.ms": 10_000}
# A client that has written nothing for so long is killed, and its successor goes on: librdkafka 2.16 may wait for a
# broker that it has forgotten, past its timeout and for ever (librdkafka issues 5511 and 5456).
HANGS_AFTER_S = 20.0
ABORT_LATE = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}


def options_of(name: str, kind: str, options: dict[str, Any]) -> dict[str, Any]:
    """A copier is a static member: its successor takes its place in the group at once.

    A new coordinator waits for all members that it has loaded, up to their session timeout. If it moves more often than
    that, a member that was killed would keep the group from ever being complete.
    """
    static = {"group.instance.id": name} if kind == "Copier" else {}
    return options | {"more": IMPATIENT_WITH_NODES | static}


NODE_CLIENTS: Clients = {
    name: ("RoutedTv2Writer", options) if kind == "Tv2Writer" else (kind, options_of(name, kind, options))
    for name, (kind, options) in CLIENTS.items()
}


class Run:
    def __init__(self, folder: Path, nodes: int, seconds: float, seed: int) -> None:
        self.seconds = seconds
        self.seed = seed
        self.rng = random.Random(seed)
        self.orders: Counter[str] = Counter()
        self.slowest_order_s = 0.0
        self.checks = 0
        self.hung: list[str] = []
        self.broker = Broker(brokers=nodes, data=folder / "data", settings=SETTINGS | ABORT_LATE)
        self.workload = Workload(self.broker, folder, seed, NODE_CLIENTS, IMPATIENT_WITH_NODES)
        self._up = list(range(1, nodes + 1))
        self._down: tuple[str, int] | None = None

    def go(self) -> None:
        """Raises Lost, with the evidence."""
        self.broker.start()
        self.workload.create_topics()
        self.workload.start()
        began = due = checked = time.monotonic()
        while (now := time.monotonic()) - began < self.seconds:
            self._fail_over()
            self.hung += self.workload.restart_hanging(HANGS_AFTER_S)
            if now - checked >= CHECK_EVERY_S:
                checked = now
                self._check(at_rest=False)
                say(f"{now - began:4.0f} s: {self.orders.total()} orders, {self.workload.commits():,} commits")
            due = max(due + EVERY_S, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
        self._bring_back()
        self.hung += self.workload.stop(HANGS_AFTER_S)
        self._check(at_rest=True)
        self.broker.kill()
        self.broker.start()
        self._check(at_rest=True)
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
        self._order("move_coordinator", self.rng.choice(list(NODE_CLIENTS)), self.rng.choice(self._up))

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

    def _check(self, *, at_rest: bool) -> None:
        self.checks += 1
        self.workload.check(at_rest=at_rest)


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
    print(f"clients that hung and were killed: {', '.join(run.hung) or 'none'}")
    print(f"the slowest order took {run.slowest_order_s:.2f} s")
    print(f"seed {run.seed}, {run.seconds:g} s, {run.checks} checks of everything")
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
