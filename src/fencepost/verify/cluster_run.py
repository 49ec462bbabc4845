"""One run against a cluster: topics, a tap, clients in processes, faults, the last reads, and the history of it all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import IO, Any

from fencepost.client.admin.topics import create_topic, delete_topic
from fencepost.client.client import KafkaClient
from fencepost.client.failures import BrokerError, ClientError
from fencepost.client.settings import parse_settings
from fencepost.counting import counted
from fencepost.faults.fault import Fault as TapFault
from fencepost.faults.fault import parse_line
from fencepost.protocol import errors
from fencepost.tap.proxy import Proxy
from fencepost.tap.running import TapThread
from fencepost.verify.history import Event, Fault, Header, Rest, encode, encode_header, merge
from fencepost.verify.nemesis.carrying_out import Nemesis
from fencepost.verify.nemesis.means import WAITS
from fencepost.verify.nemesis.schedule import NEMESIS, schedule
from fencepost.verify.workload.fleet import TICK_S, Fleet
from fencepost.verify.workload.last_reads import BY, await_rest, last_reads
from fencepost.verify.workload.logins import client_settings
from fencepost.verify.workload.notes import now
from fencepost.verify.workload.plan import JAVA, ClientPlan, Plan, make_plan

REPORT_EVERY_S = 10.0
# For transactions that only their timeout can end, and the coordinator's pauses between two looks at them.
REST_S = 30.0
# The checkers take a record that is not there at the end for lost, whatever the cluster's defaults are.
KEEP_ALL = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


class TopicsRefused(Exception):
    """The cluster creates no topics that keep every record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    settings: Mapping[str, str]  # Of Kafka's clients, with bootstrap.servers.
    prefix: str
    writers: Mapping[str, int]  # Kinds of clients, and how many of each.
    seconds: float
    seed: int
    faults: Sequence[str]
    tap_faults: Sequence[str] = ()  # For the whole run, in the words of `fencepost tap`.
    command: str | None = None
    command_every_s: float = 10.0
    replication_factor: int = -1
    keep: bool = False
    transaction_version: int = 1  # Of the cluster.
    java: Sequence[str] = ()  # The command of a Java client.


@dataclass(slots=True)
class ClusterRun:
    """`say` gets a sentence now and then; `tick` the seconds so far."""

    options: RunOptions
    folder: Path
    say: Callable[[str], None]
    tick: Callable[[float], None] = lambda _: None
    plan: Plan = field(init=False)
    clients: Fleet = field(init=False)
    problems: list[str] = field(default_factory=list)  # Sentences for the user.
    is_incomplete: bool = False  # Not everything could be read at the end.
    _events: list[Event] = field(default_factory=list)  # Of this process.
    _tap_faults: dict[str, TapFault] = field(default_factory=dict)  # For the whole run, by their words.

    def __post_init__(self) -> None:
        self.plan = make_plan(self.options.prefix, self.options.writers)

    def go(self, client: KafkaClient) -> None:
        """Run, and read everything at the end. Ctrl-C ends the run early, and all is read then too.

        Raises ClientError if the cluster does not answer, ClientFailed if a client of the run fails, TopicsRefused.
        """
        with self._topics(client), self._tap() as tap:
            self.clients = Fleet(
                self.plan.clients,
                lambda plan: self._settings_of(plan, tap.tap.address),
                self.options.seed,
                self.folder,
                self._note,
            )
            try:
                self._work(tap)
                self._read_all(client)
            finally:
                self.clients.kill_all()

    def _settings_of(self, plan: ClientPlan, address: str) -> Mapping[str, Any]:
        options = self.options
        settings = client_settings(plan.kind, options.settings, address, plan.name)
        if plan.kind != JAVA:
            return settings
        return {"command": list(options.java), "library": settings, "transaction_version": options.transaction_version}

    def _work(self, tap: TapThread) -> None:
        began = now()
        try:
            self._disturb(tap)
        except KeyboardInterrupt:
            self.say("interrupted: the clients end their transactions, and what they did is judged")
        tap.call(tap.tap.clear_faults)
        for line, fault in self._tap_faults.items():
            if fault.hits:
                self._note(Fault(began, NEMESIS, f"{line} ({counted(fault.hits, 'time')})", (now() - began) / 1e9))
        self.clients.stop(self.say)

    def _read_all(self, client: KafkaClient) -> None:
        self.say("reading everything that was written")
        try:
            if not await_rest(client, self.plan.topics, REST_S, self.say):
                self.say(f"a partition still has an open transaction after {REST_S:g} s")
            self._note(Rest(now(), BY))
            last_reads(client, self.plan.topics, self.plan.groups, self._note, self.say)
        except ClientError as e:
            self.is_incomplete = True
            self.problems.append(f"the end of the run could not be read: {e}")

    def _disturb(self, tap: TapThread) -> None:
        options = self.options
        for line in options.tap_faults:
            self._tap_faults[line] = parse_line(line)
            tap.call(lambda fault=self._tap_faults[line]: tap.tap.add_fault(fault))  # type: ignore[misc]
        self.clients.start()
        actions = schedule(
            Random(f"{options.seed}/nemesis"),
            options.seconds,
            options.faults,
            [each.name for each in self.plan.clients if each.transactional_id],
            options.command,
            options.command_every_s,
        )
        nemesis = Nemesis(actions, tap, self.clients, self._note)
        try:
            began = time.monotonic()
            self._watch(nemesis, began, lambda at_s: at_s < options.seconds)
            nemesis.end_all_but_commands()
            if nemesis.is_disturbing:
                self.say(WAITS)
                self._watch(nemesis, began, lambda _: nemesis.is_disturbing)
        finally:
            nemesis.stop()

    def _watch(self, nemesis: Nemesis, began: float, goes_on: Callable[[float], bool]) -> None:
        reported = time.monotonic()
        while goes_on(at_s := time.monotonic() - began):
            nemesis.step(at_s)
            self.clients.check()
            self.tick(at_s)
            if time.monotonic() - reported > REPORT_EVERY_S:
                reported = time.monotonic()
                self.say(f"{at_s:.0f} s: {self.clients.noted_bytes:,} bytes of history")
            time.sleep(TICK_S)

    def _note(self, event: Event) -> None:
        self._events.append(event)
        if isinstance(event, Fault):
            self.say(f"fault: {event.what}" + (f", for {event.seconds:.1f} s" if event.seconds else ""))

    @contextmanager
    def _topics(self, client: KafkaClient) -> Iterator[None]:
        created = []
        try:
            for topic, partitions in self.plan.topics.items():
                _create(client, topic, partitions, self.options.replication_factor)
                created.append(topic)
            yield
        finally:
            for topic in created if not self.options.keep else ():
                try:
                    delete_topic(client, topic)
                except ClientError as e:
                    self.problems.append(f"topic {topic} could not be deleted: {e}")

    def _tap(self) -> TapThread:
        settings = parse_settings(self.options.settings)
        return TapThread(Proxy(settings, ("127.0.0.1", 0), show=lambda _: None, say=self.problems.append))

    def write_history(self, file: IO[bytes]) -> None:
        options = self.options
        what = {
            "verify": "cluster",
            "clients": ", ".join(f"{count} {kind}" for kind, count in options.writers.items()),
            "seconds": options.seconds,
            "faults": ", ".join([*options.faults, *options.tap_faults]) or "none",
            "nemesis": options.command or "none",
        }
        write_history(
            file,
            Header(options.seed, what, dict(self.plan.topics), copies=copies_of(self.plan)),
            self._events,
            self.folder,
        )


def _create(client: KafkaClient, topic: str, partitions: int, replication_factor: int) -> None:
    try:
        create_topic(client, topic, partitions, replication_factor, KEEP_ALL)
    except BrokerError as e:
        if e.code not in (errors.INVALID_CONFIG, errors.POLICY_VIOLATION):
            raise
        wanted = ", ".join(f"{name}={value}" for name, value in KEEP_ALL.items())
        raise TopicsRefused(f"the cluster refuses topics that keep every record ({wanted}): {e}") from None


def write_history(file: IO[bytes], header: Header, events: Iterable[Event], folder: Path) -> None:
    """Write the history of a run: its header, the events of this process, and the parts of the clients in a folder."""
    file.write(encode_header(header).encode())
    own = [encode(event).encode() for event in sorted(events, key=lambda event: event.at)]
    parts = [part.open("rb") for part in sorted(folder.glob("*.part"))]
    try:
        file.writelines(merge([own, *parts]))
    finally:
        for part in parts:
            part.close()


def copies_of(plan: Plan) -> dict[str, str]:
    """The groups of the copiers, each with the topic of its outputs."""
    return {client.group_id: client.target for client in plan.clients if client.group_id}
