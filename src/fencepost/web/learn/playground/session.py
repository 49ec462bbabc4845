"""One playground: a broker with two nodes in a temporary folder, two producers, and what each click does."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.groups import group_offsets
from fencepost.client.client import COORDINATOR_MOVED, GROUP, TRANSACTION, KafkaClient, retry
from fencepost.client.failures import ClientError
from fencepost.diagnose.errors.table import TABLE
from fencepost.machines.acl.acls import Operation, PatternType, PermissionType, ResourceType
from fencepost.protocol.messages import CreateAclsRequest, DeleteAclsRequest, JoinGroupRequest, SyncGroupRequest
from fencepost.protocol.transaction_version import TV1, TV2
from fencepost.testing import Broker, BrokerFailed, OrderRefused
from fencepost.web.learn.playground.buttons import BUTTONS, PRODUCERS, Click, check, says
from fencepost.web.learn.playground.guide import MissedStep, Progress, advance, missed_step
from fencepost.web.learn.playground.partition import collect_partition
from fencepost.web.learn.playground.producer import (
    LONG_METADATA,
    TIMEOUT_MS,
    UNKNOWN_PARTITION,
    GroupIdentity,
    SentRequest,
    SingleProducer,
    exchange,
)
from fencepost.web.learn.watching import BrokerWatcher, Document

TOPIC = "orders"
WHERE = (TOPIC, 0)
GROUP_ID = "order-readers"
INSTANCE_ID = "reader-1"
PRINCIPAL = "User:ANONYMOUS"
MOST_CLICKS = 30
START_S = 10.0
DELAY_MS = 3000
PAST_TIMEOUT_MS = 2 * TIMEOUT_MS
PAST_EXPIRATION_MS = 8 * 86_400_000
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": True,
    "group.initial.rebalance.delay.ms": 0,
    # The clock may be moved by days, and the records should stay.
    "log.retention.ms": -1,
}


class BadClick(ValueError):
    """The click is impossible, now or ever. The message says why."""


class Playground:
    """Clicks are done one after the other; the other methods may be called meanwhile."""

    def __init__(self) -> None:
        self._one_click = threading.Lock()
        self._is_closed = False
        self._folder = tempfile.TemporaryDirectory(prefix="fencepost-playground-", ignore_cleanup_errors=True)
        self._broker = Broker(data=self._folder.name, settings=SETTINGS, brokers=2, topics={TOPIC: 1})
        self._round = 0
        self._clicks: deque[Document] = deque(maxlen=MOST_CLICKS)
        self._clicked = 0
        self._progress = Progress()
        self._ahead_ms = 0
        self._leader = self._coordinator = 1
        self._member = GroupIdentity()
        self._look: Document = {}
        self._watcher = BrokerWatcher()
        self._producers: dict[str, SingleProducer] = {}
        self._is_cut = False
        self._forbidden: list[str] = []
        try:
            self._broker.start()
            self._start_over()
        except BaseException:
            self.close()
            raise

    @property
    def transactional_id(self) -> str:
        return f"order-service-{self._round}"

    # --- for the page -------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        return self._one_click.locked()

    def click(self, click: Click) -> Document:
        """Do it, and return what it did. Raises BadClick."""
        if (problem := check(click)) is not None:
            raise BadClick(problem)
        with self._one_click:
            self._check_open()
            before = self._producers[click.producer].steps
            try:
                exchanges = self._do(click)
            except (BrokerFailed, OrderRefused, ClientError) as e:
                raise BadClick(str(e).partition("\n\n")[0]) from None
            self._clicked += 1
            self._progress = advance(self._progress, click, exchanges[-1].error_code if exchanges else None)
            done = {
                "number": self._clicked,
                "says": says(click),
                "about": BUTTONS[click.button].about,
                "click": click._asdict(),
                "exchanges": [explained(each, missed_step(before, each.error_code)) for each in exchanges],
            }
            self._clicks.appendleft(done)
            return done

    def document(self) -> Document:
        """Everything that the page shows. The broker is asked, unless a click is being done."""
        if self._one_click.acquire(blocking=False):
            try:
                self._observe()
            finally:
                self._one_click.release()
        return {
            "transactional_id": self.transactional_id,
            "group_id": GROUP_ID,
            "broker": {
                "is_running": self._broker.is_running,
                "address": self._broker.bootstrap_servers,
                "clock_ahead_ms": self._ahead_ms,
                "is_cut": self._is_cut,
                "leader": self._leader,
                "coordinator": self._coordinator,
                "forbidden": list(self._forbidden),
                "member": self._member.member_id or None,
            },
            "producers": [producer.document() for producer in self._producers.values()],
            "clicks": list(self._clicks),
            "progress": self._progress._asdict(),
            **self._look,
        }

    def close(self) -> None:
        """Ends the broker, also while a click is being done, which then cannot start it again."""
        self._is_closed = True
        for producer in self._producers.values():
            producer.close()
        self._broker.kill()
        self._folder.cleanup()

    def _check_open(self) -> None:
        if self._is_closed:
            raise BadClick("this playground is closed")

    # --- clicks -------------------------------------------------------------------------------------------

    def _do(self, click: Click) -> list[SentRequest]:
        producer = self._producers[click.producer]
        of_producer: dict[str, Callable[[], list[SentRequest]]] = {
            "register": lambda: producer.register(click.option),
            "begin": producer.begin,
            "produce": lambda: producer.produce(WHERE, round(time.time() * 1000), click.option),
            "add-partitions": lambda: producer.add_partitions(
                [WHERE, (TOPIC, UNKNOWN_PARTITION)] if click.option else [WHERE]
            ),
            "add-offsets": lambda: self._add_offsets(producer, click.option),
            "commit": lambda: producer.end(True),
            "abort": lambda: producer.end(False),
            "client": lambda: producer.change_version(TV1 if click.option == "older" else TV2),
        }
        if click.button in of_producer:
            return of_producer[click.button]()
        if click.button == "join":
            return self._join()
        self._change_world(click)
        return []

    def _add_offsets(self, producer: SingleProducer, mistake: str) -> list[SentRequest]:
        real = self._member
        member = {
            "unknown-member": GroupIdentity(max(real.generation_id, 1), "a member that left"),
            "old-generation": GroupIdentity(real.generation_id + 100, real.member_id, real.instance_id),
            "taken-instance": GroupIdentity(real.generation_id, "another member", INSTANCE_ID),
        }.get(mistake, real)
        group_id = "" if mistake == "no-group" else GROUP_ID
        return producer.add_offsets(group_id, WHERE, member, LONG_METADATA if mistake == "long-metadata" else "")

    def _change_world(self, click: Click) -> None:
        broker, faults = self._broker, self._broker.faults
        match click.button:
            case "kill":
                broker.kill()
                for producer in self._producers.values():
                    producer.close()  # As clients notice that their connections have ended.
            case "start":
                self._start()
            case "delay-end":
                faults.delay_on("EndTxn", DELAY_MS, at="request", client_id="producer-*")
            case "lose-answer":
                faults.disconnect_on(click.option, client_id="producer-*")
            case "inject":
                api, _, error = click.option.partition(" ")
                faults.inject_error(api, error, client_id="producer-*")
            case "clock":
                self._move_clock(PAST_TIMEOUT_MS if click.option == "timeout" else PAST_EXPIRATION_MS)
            case "cut":
                broker.nodes.unplug()
                self._is_cut = True
            case "mend":
                broker.nodes.plug()
                self._is_cut = False
            case "move-leader":
                self._leader = 3 - self._leader
                broker.nodes.move_leader(*WHERE, self._leader)
            case "move-coordinator":
                self._coordinator = 3 - self._coordinator
                broker.nodes.move_coordinator(self.transactional_id, self._coordinator)
            case "forbid":
                self._forbid(click.option)
            case "allow":
                self._allow()
            case "reset":
                self._start_over()

    def _start(self) -> None:
        self._check_open()
        if self._broker.is_running:
            raise BadClick("the broker is running")
        try:
            self._broker.start()
        finally:
            if self._is_closed:
                self.close()  # The first time may have come before there was a process to end.
        self._check_open()
        # A new process has the real time, no faults, and its nodes are connected.
        self._ahead_ms, self._is_cut = 0, False
        self._place()

    def _move_clock(self, ms: int) -> None:
        self._broker.advance_clock(ms)
        self._ahead_ms += ms

    def _start_over(self) -> None:
        if not self._broker.is_running:
            self._start()
        self._broker.faults.clear()
        self._broker.nodes.plug()
        self._is_cut = False
        self._allow()
        for producer in self._producers.values():
            producer.close()
        self._round += 1
        self._member = GroupIdentity()
        self._producers = {
            name: SingleProducer(name, self._broker.bootstrap_servers, self.transactional_id) for name in PRODUCERS
        }
        # On two nodes, so that the markers need the network between them.
        self._leader, self._coordinator = 2, 1
        self._place()

    def _place(self) -> None:
        """Have the nodes lead what they should: a new process, and a new id, begin anywhere."""
        with self._client() as client:
            # The first question for a coordinator creates its topic.
            for key, kind in ((self.transactional_id, TRANSACTION), (GROUP_ID, GROUP)):
                retry(partial(client.coordinator, key, kind), START_S, COORDINATOR_MOVED)
        self._broker.nodes.move_leader(*WHERE, self._leader)
        self._broker.nodes.move_coordinator(self.transactional_id, self._coordinator)

    def _join(self) -> list[SentRequest]:
        with self._client("consumer") as client:

            def send(request: Any, at_most: int) -> SentRequest:
                return exchange("consumer", client, lambda: client.coordinator(GROUP_ID, GROUP), request, at_most)

            protocol = JoinGroupRequest.JoinGroupRequestProtocol("range", b"")
            joined = send(JoinGroupRequest(GROUP_ID, 300_000, 300_000, "", INSTANCE_ID, "consumer", [protocol]), 8)
            if joined.error_code or joined.answer is None:
                return [joined]
            self._member = GroupIdentity(joined.answer["generation_id"], joined.answer["member_id"], INSTANCE_ID)
            assignment = SyncGroupRequest.SyncGroupRequestAssignment(self._member.member_id, b"")
            member = self._member
            synced = send(
                SyncGroupRequest(
                    GROUP_ID, member.generation_id, member.member_id, INSTANCE_ID, "consumer", "range", [assignment]
                ),
                5,
            )
            return [joined, synced]

    def _forbid(self, what: str) -> None:
        """Deny one operation. Everything else on the resource is allowed, so that the page can still look at it."""
        topic = (ResourceType.TOPIC, TOPIC, Operation.WRITE)
        denied = {
            "topic": [topic],
            "group": [(ResourceType.GROUP, GROUP_ID, Operation.READ)],
            "transactional-id": [(ResourceType.TRANSACTIONAL_ID, self.transactional_id, Operation.WRITE)],
            "cluster": [
                (ResourceType.CLUSTER, "kafka-cluster", Operation.IDEMPOTENT_WRITE),
                (ResourceType.TOPIC, "*", Operation.WRITE),
            ],
        }[what]
        acls = [
            CreateAclsRequest.AclCreation(kind, name, PatternType.LITERAL, PRINCIPAL, "*", operation, permission)
            for kind, name, forbidden in denied
            for operation, permission in ((forbidden, PermissionType.DENY), (Operation.ALL, PermissionType.ALLOW))
        ]
        with self._client() as client:
            client.send(client.any_broker(), CreateAclsRequest(acls))
        self._forbidden.append(what)

    def _allow(self) -> None:
        every = DeleteAclsRequest.DeleteAclsFilter(
            ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, PermissionType.ANY
        )
        with self._client() as client:
            client.send(client.any_broker(), DeleteAclsRequest([every]))
        self._forbidden.clear()

    # --- what is there afterwards -------------------------------------------------------------------------

    def _client(self, name: str = "learn") -> KafkaClient:
        return KafkaClient({"bootstrap.servers": self._broker.bootstrap_servers, "client.id": name}, 0)

    def _observe(self) -> None:
        """Observation at the id, its records, the partition and the group."""
        if not self._broker.is_running:
            assert self._broker.data is not None
            on_disk = self._watcher.look_at_disk(self._broker.data, self.transactional_id).states_on_disk
            self._look = {**self._look, "txn": None, "states_on_disk": on_disk, "problem": None}
            return
        look = self._watcher.look(self._broker.bootstrap_servers)
        seen = look.document(self._watcher.history)
        id_ = self.transactional_id
        self._look = {
            "txn": next((txn for txn in seen["txns"] if txn["transactional_id"] == id_), None),
            "drawing": self._watcher.draw(self._broker.bootstrap_servers, id_) or self._look.get("drawing"),
            "records": self._records(seen["records"]),
            "partition": self._look.get("partition"),
            "group": self._look.get("group"),
            "states_on_disk": None,
            "problem": seen["problem"],
        }
        try:
            with self._client() as client:
                self._look["partition"] = collect_partition(client, NamedPartition(*WHERE))
                self._look["group"] = group_document(client)
        except ClientError as e:
            self._look["problem"] = str(e).partition("\n\n")[0]

    def _records(self, new: list[Document]) -> list[Document]:
        before = self._look.get("records", [])
        mine = [record for record in (*before, *new) if record["transactional_id"] == self.transactional_id]
        return mine[-MOST_CLICKS:]


def group_document(client: KafkaClient) -> Document:
    """The offset of the group, and whether a transaction that is open may change it."""
    home = client.coordinator(GROUP_ID, GROUP)
    node_id = next(id_ for id_, address in client.brokers().items() if address == (home.host, home.port))
    where = NamedPartition(*WHERE)
    found = group_offsets(client, {GROUP_ID: node_id}, [where]).found.get(GROUP_ID, {}).get(where)
    return {
        "group_id": GROUP_ID,
        "offset": None if found is None else found.offset,
        "is_pending": found is not None and found.is_pending,
    }


def explained(sent: SentRequest, missed: MissedStep | None = None) -> Document:
    """The exchange, with what the table of errors says about its error; `missed`: a better explanation."""
    document = sent.document()
    entry = TABLE.get(sent.error_code)
    if missed is not None:
        document["explanation"] = {"meaning": missed.meaning, "what_to_do": missed.what_to_do}
    elif sent.error_code and entry is not None:
        document["explanation"] = {
            "meaning": entry.meaning,
            "who": entry.who.value,
            "effect": entry.effect.value,
            "then": entry.then.value,
            "what_to_do": entry.what_to_do,
        }
    return document
