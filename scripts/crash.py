"""Kill a broker under load with kill -9, again and again, damage its files in between, and look for lost data.

Usage: python -m scripts.crash [--rounds N] [--seed N]

The clients are those of `fencepost verify cluster`; some are killed too. The broker dies at random moments and at every
named point, sometimes while it recovers. Between two starts the ends of logs are torn, indexes and snapshots are
spoilt, and sometimes the machine loses power and all data that was not synced. Now and then all clients rest,
everything is read, and the checkers of `fencepost verify` judge the history.

The seed decides what is done, but not the timing, so two runs of a seed are similar, not equal.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import statistics
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.cli.streams import say
from fencepost.server.control import POINTS
from fencepost.testing import BrokerFailed
from tests.crash.carrying_out import carry_out
from tests.crash.damage import change_a_byte, spoil_derived, tear_tails
from tests.crash.killing import CHOICES, kill_while_it_starts
from tests.crash.power import PAGE_BYTES, DurableDisk, WatchedBroker
from tests.crash.workload import COPIERS, SETTINGS, WRITERS, Lost, Workload
from tests.readers.reading import IMPATIENT, read_all

# Points that every transaction reaches: there, the Nth time is another moment than the first. Others are rare.
FREQUENT = ("txn.", "offsets.", "index.")
POINT_TIMEOUT_S = 20.0
RESTS = 10  # At most, in a run, beside the last one.
KILLED_CLIENTS = [client.name for client in (*WRITERS, *COPIERS)]
CUT = re.compile(r": cut (\d+) bytes of \S+ after offset -?\d+ \(position (\d+)")
MADE_AGAIN = re.compile(r"^(\S+): .*?(\d{20})\.\w+ is (?:missing|damaged)", re.MULTILINE)


@dataclass(frozen=True)
class Plan:
    """What happens in a round: how the broker runs, how it ends, and how its files are damaged."""

    settings: dict[str, str]
    point: str = ""  # Where it dies; if empty, at a random moment.
    times: int = 1
    after_s: float = 0.0
    loses_power: bool = False
    torn: int = 0
    spoilt: int = 0
    killed_in_recovery: tuple[float, ...] = ()
    killed_client: int = -1


@dataclass
class Tally:
    """Counts of what was done so far."""

    points: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    in_recovery: int = 0
    power_losses: int = 0
    torn: int = 0
    torn_by_kills: int = 0
    spoilt: int = 0
    clients: int = 0
    rests: int = 0
    restarts_s: list[float] = field(default_factory=list)


def plan_rounds(rounds: int, rng: random.Random, client_count: int) -> list[Plan]:
    """Every other round ends at a named point; every point is used once before any is used again."""
    points: list[str] = []
    plans = []
    for number in range(rounds):
        if not points:
            points = rng.sample(POINTS, len(POINTS))
        point = points.pop() if number % 2 == 0 else ""
        settings = {name: rng.choice(values) for name, values in CHOICES.items()}
        loses_power = number % 4 in (0, 3) and rng.random() < 0.5
        if loses_power:
            settings["fencepost.flush.on.commit"] = "true"
        damage = "" if loses_power else rng.choice(["", "tails", "derived", "both"])
        plans.append(
            Plan(
                settings,
                point,
                rng.choice([1, 1, 2, 3, 10, 40]) if point.startswith(FREQUENT) else 1,
                rng.uniform(0.05, 1.5),
                loses_power,
                rng.randint(1, 4) if damage in ("tails", "both") else 0,
                rng.randint(1, 8) if damage in ("derived", "both") else 0,
                tuple(rng.uniform(0.15, 0.5) for _ in range(rng.choice([0, 0, 0, 1, 2]))),
                rng.randrange(client_count) if rng.random() < 0.15 else -1,
            )
        )
    return plans


class Run:
    def __init__(self, folder: Path, rounds: int, seed: int) -> None:
        self.folder = folder
        self.rounds = rounds
        self.seed = seed
        self.rng = random.Random(seed)
        self.tally = Tally()
        self.round = 0
        self.spoilt: set[tuple[str, str]] = set()  # Partition and base offset of segments with a damaged index.
        data, syncs = folder / "data", folder / "syncs"
        self.data = data
        data.mkdir()
        self.broker = WatchedBroker(data=data, settings=SETTINGS, syncs=syncs)
        self.disk = DurableDisk(data, syncs)
        self.workload = Workload(self.broker, folder, seed)

    def go(self) -> None:
        """Raises Lost, with the evidence."""
        plans = plan_rounds(self.rounds, self.rng, len(KILLED_CLIENTS))
        self._begin_life(plans[0])
        self.broker.start()
        self.workload.create_topics()
        self.workload.start()
        for number, plan in enumerate(plans, 1):
            self.round = number
            how = self._end_life(plan)
            said_before = len(self.broker.warnings)
            damage, torn = self._damage(plan)
            self.workload.note_fault(f"the broker: {how}; {damage}")
            restart_s = self._begin_next_life(plan, plans[number % len(plans)])
            self._check_report("\n".join(self.broker.warnings[said_before:]), torn, plan)
            self.workload.check()
            noted = self.workload.noted()
            say(f"round {number}/{self.rounds}: {how}; {damage}; back in {restart_s:.2f} s; {noted}")
            # A rest reads all records, so long runs rest only in some rounds.
            if number % max(5, self.rounds // RESTS) == 0 and number < self.rounds:
                self._rest()
                self.workload.start()
        self._rest()
        self.broker.stop()
        self._check_that_a_changed_byte_is_reported()

    def close(self) -> None:
        self.workload.kill()
        self.broker.kill()

    # --- one round ------------------------------------------------------------------------------------------------

    def _begin_life(self, plan: Plan) -> None:
        self.broker.settings = {**SETTINGS, **plan.settings}
        self.broker.is_watched = plan.loses_power
        if plan.loses_power:
            # The data that earlier processes left in the page cache counts as written.
            self.disk = DurableDisk(self.data, self.broker.syncs)

    def _end_life(self, plan: Plan) -> str:
        if plan.killed_client >= 0:
            self.tally.clients += 1
            self.workload.fleet.kill(KILLED_CLIENTS[plan.killed_client])
        self.tally.kills += 1
        also = f", {KILLED_CLIENTS[plan.killed_client]} too" if plan.killed_client >= 0 else ""
        if not plan.point:
            time.sleep(plan.after_s)
            if not self.broker.is_running:
                raise Lost(f"the broker ended by itself with exit code {self.broker.wait_for_exit()}")
            self.broker.kill()
            return f"killed after {plan.after_s:.2f} s{also}"
        where = plan.point if plan.times == 1 else f"{plan.point}:{plan.times}"
        with suppress(BrokerFailed):  # It may reach the point before it has answered.
            self.broker.crash_at(plan.point, plan.times)
        if plan.point == "metadata.save":
            self._make_a_topic()
        try:
            exit_code = self.broker.wait_for_exit(POINT_TIMEOUT_S)
        except BrokerFailed:
            self.broker.kill()
            self.tally.missed[plan.point] += 1
            return f"killed, for it did not get to {where} in {POINT_TIMEOUT_S:g} s{also}"
        if exit_code != -signal.SIGKILL:
            raise Lost(f"the broker ended by itself with exit code {exit_code}")
        self.tally.points[plan.point] += 1
        return f"killed at {where}{also}"

    def _make_a_topic(self) -> None:
        admin = AdminClient(IMPATIENT | {"bootstrap.servers": self.broker.bootstrap_servers})
        name = f"more-{self.round}"
        with suppress(KafkaException):
            admin.create_topics([NewTopic(name)])[name].result(2)

    def _damage(self, plan: Plan) -> tuple[str, list[str]]:
        """Damage the files; return what was done, in words, and the names of the torn logs."""
        if plan.loses_power:
            self.tally.power_losses += 1
            self.spoilt |= {(path.parent.name, path.stem) for path in self.data.glob("*/*.log")}
            lost = self.disk.lose_power(self.rng)
            self.workload.note_power_loss()
            return lost, []
        torn = tear_tails(self.data, self.rng, plan.torn)
        spoilt = spoil_derived(self.data, self.rng, plan.spoilt)
        self.spoilt |= {(path.parent.name, path.stem) for path in spoilt}
        self.tally.torn += len(torn)
        self.tally.spoilt += len(spoilt)
        if not torn and not spoilt:
            return "no damage", []
        parts = [f"{len(torn)} tails torn"] if torn else []
        parts += [f"{len(spoilt)} indexes or snapshots spoilt"] if spoilt else []
        return ", ".join(parts), torn

    def _begin_next_life(self, plan: Plan, following: Plan) -> float:
        """Start again, after some starts that are killed early; return how long the last start took."""
        self._begin_life(following)
        for after_s in plan.killed_in_recovery:
            self.tally.in_recovery += kill_while_it_starts(self.broker, after_s)
            self.tally.kills += 1
        if following.loses_power and plan.killed_in_recovery:
            self._begin_life(following)
        began = time.monotonic()
        self.broker.start()
        self.tally.restarts_s.append(time.monotonic() - began)
        return self.tally.restarts_s[-1]

    # --- what must be true ------------------------------------------------------------------------------------------

    def _check_report(self, said: str, torn: list[str], plan: Plan) -> None:
        """Torn logs are cut, with a log line for each; files that were not damaged are left alone."""
        silent = [name for name in torn if f"{name}: cut " not in said]
        if silent:
            raise Lost(f"torn writes at the end of {', '.join(silent)}, and no log line about them:\n{said}")
        # A spoilt index may be noticed by a later start, after a lookup in it. A start that is killed early may have
        # removed an index that it was about to rebuild.
        innocent = [match[0] for match in MADE_AGAIN.finditer(said) if (match[1], match[2]) not in self.spoilt]
        if innocent and not plan.killed_in_recovery:
            raise Lost(f"no index was damaged, but the broker says:\n{said}")
        if not plan.torn and not plan.loses_power:
            for match in CUT.finditer(said):
                # When a process is killed, Linux ends its write at the end of a page, and nowhere else.
                if (int(match[1]) + int(match[2])) % PAGE_BYTES:
                    raise Lost(f"no log was torn, but the broker says:\n{said}")
                self.tally.torn_by_kills += 1
        if "Traceback" in said:
            raise Lost(f"the broker has a bug:\n{said}")

    def _rest(self) -> None:
        self.tally.rests += 1
        self.workload.rest()

    def _check_that_a_changed_byte_is_reported(self) -> None:
        """If the disk changes acknowledged data, a reader must get an error, not wrong data."""
        log = min((self.data / "payments-0").glob("*.log"))
        offset = change_a_byte(log, at_least_batches=10)
        self.broker.start()
        try:
            read_all(self.broker.bootstrap_servers, ["payments"], more={"check.crcs": True})
        except KafkaException as error:
            say(f"one byte of payments-0 changed at offset {offset}: the reader gets: {error.args[0].str()}")
        else:
            raise Lost(f"the batch at offset {offset} of payments-0 is corrupt, and the reader got no error")
        finally:
            self.broker.kill()


def main() -> int:
    options = parse_arguments()
    folder = Path(tempfile.mkdtemp(prefix="fencepost-crash-"))
    say(f"seed {options.seed}: {options.rounds} rounds")
    run = Run(folder, options.rounds, options.seed)
    began = time.monotonic()
    exit_code = carry_out(run, folder, options.seed, lambda: f"in round {run.round}")
    if exit_code == 0:
        report(run, time.monotonic() - began)
    return exit_code


def report(run: Run, took_s: float) -> None:
    tally = run.tally
    print(f"transactions: {run.workload.counts()}")
    print(
        f"kills: {tally.kills}, {tally.in_recovery} of them in recovery; power lost {tally.power_losses} times; "
        f"{tally.torn} logs torn, {tally.torn_by_kills} more by kills alone; "
        f"{tally.spoilt} indexes and snapshots spoilt; {tally.clients} clients killed"
    )
    for point in POINTS:
        missed = f", {tally.missed[point]} times not reached" if tally.missed[point] else ""
        print(f"  {point:22} {tally.points[point]:3} times{missed}")
    print(f"restarts: median {statistics.median(tally.restarts_s):.2f} s, longest {max(tally.restarts_s):.2f} s")
    print(f"seed {run.seed}, {run.rounds} rounds, {tally.rests} checks of everything, {took_s:.0f} s")
    print("nothing lost")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.crash",
        description=(__doc__ or "").partition("\n")[0],
        epilog="example: make crash ROUNDS=200 SEED=7",
    )
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 1 << 31))
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}, expected 1 or more")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
