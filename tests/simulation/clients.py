"""Clients as generators: each yields a request and gets the response or None, or yields how long to sleep.

A `Role` is a job such as the producer with transactional.id `w1`; an `Instance` is one process that does it. An
instance can die at any request, or freeze. Then another takes over, and when the first wakes up, it continues as if
nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from fencepost.protocol import errors
from fencepost.protocol.schema import Message
from tests.simulation.network import REQUEST_TIMEOUT_MS, Call

if TYPE_CHECKING:
    from tests.simulation.world import World

TRY_AGAIN = frozenset({
    errors.COORDINATOR_LOAD_IN_PROGRESS, errors.COORDINATOR_NOT_AVAILABLE, errors.NOT_COORDINATOR,
    errors.CONCURRENT_TRANSACTIONS, errors.NOT_ENOUGH_REPLICAS, errors.KAFKA_STORAGE_ERROR,
    errors.UNSTABLE_OFFSET_COMMIT, errors.NETWORK_EXCEPTION, errors.NOT_LEADER_OR_FOLLOWER,
})  # fmt: skip
ABORTABLE = frozenset({
    errors.TRANSACTION_ABORTABLE, errors.OUT_OF_ORDER_SEQUENCE_NUMBER, errors.ILLEGAL_GENERATION,
    errors.UNKNOWN_MEMBER_ID, errors.REBALANCE_IN_PROGRESS,
})  # fmt: skip

Steps = Generator[Any, Any, Any]
ErrorOf = Callable[[Any], int]


class Over(Exception):
    """This instance cannot continue."""


class MustAbort(Exception):
    """This transaction cannot be committed."""


def error_code(response: Any) -> int:
    code: int = response.error_code
    return code


class Role:
    def __init__(self, world: World, name: str, kind: type[Instance], **options: Any) -> None:
        self.world = world
        self.name = name
        self.instances = 0
        self.alive = 0
        self._kind = kind
        self._options = options

    def spawn(self) -> None:
        self.instances += 1
        self.alive += 1
        instance = self._kind(self, f"{self.name}.{self.instances}", **self._options)
        self.world.note(instance.name, "starts")
        instance.resume(None)

    def spawn_soon(self) -> None:
        self.world.clock.after(self.world.rng.randint(1, 200), self._spawn_if_needed)

    def _spawn_if_needed(self) -> None:
        if not self.world.is_calm:
            self.spawn()

    def ended(self) -> None:
        self.alive -= 1
        if not self.alive:
            self.spawn_soon()


class Instance:
    """One process."""

    is_mortal = True
    letter = ""

    def __init__(self, role: Role, name: str) -> None:
        self.role = role
        self.name = name
        self.world = role.world
        self.rng = role.world.rng
        self.txn = 0  # The number of its latest transaction.
        self._steps = self._run()

    def steps(self) -> Steps:
        raise NotImplementedError

    def _run(self) -> Steps:
        try:
            yield from self.steps()
        except Over as reason:
            self.world.note(self.name, "cannot continue: %s", reason)

    def resume(self, value: Any) -> None:
        try:
            op = self._steps.send(value)
        except StopIteration:
            self.role.ended()
            return
        if type(op) is int:
            self.world.clock.after(op, partial(self.resume, None))
            return
        request, version = op
        world = self.world
        if self.is_mortal and not world.is_calm:
            fate = self.rng.random()
            if fate < world.client_death:
                world.note(self.name, "dies with %s under way", request)
                self._send(request, version, lambda response: None).is_over = True
                self._steps.close()
                self.role.ended()
                return
            if fate < world.client_death + world.client_freeze and self.role.alive < 3:
                ms = self.rng.randint(100, 1500)
                world.note(self.name, "freezes for %s ms before %s", ms, request)
                world.clock.after(ms, partial(self._wake_up, request, version))
                self.role.spawn_soon()
                return
        self._send(request, version, self.resume)

    def _wake_up(self, request: Message, version: int) -> None:
        self._send(request, version, self.resume)

    def _send(self, request: Message, version: int, answer: Callable[[Any], None]) -> Call:
        txn = self.txn
        timeout_ms = REQUEST_TIMEOUT_MS
        for wait in ("max_wait_ms", "rebalance_timeout_ms"):  # The broker may wait this long before it answers.
            timeout_ms += getattr(request, wait, 0)
        return Call(self.world, self.name, request, version, answer, lambda: self.is_stale(txn), timeout_ms)

    def is_stale(self, txn: int) -> bool:
        """Whether to drop a late request of transaction number `txn`."""
        return False

    def ask(self, request: Message, version: int, error_of: ErrorOf, tries: int) -> Steps:
        """Send until the answer is final. Return it (or None), its error, and whether an earlier one is missing."""
        doubted = False
        for _ in range(60 if self.world.is_calm else tries):
            response = yield request, version
            if response is None:
                doubted = True
                yield self.rng.randint(1, 60)
            else:
                error = error_of(response)
                if error not in TRY_AGAIN:
                    if error:
                        self.world.note(self.name, "%s: %s", errors.name_of(error), request)
                    return response, error, doubted
            yield self.rng.randint(1, 40)
        return None, errors.NETWORK_EXCEPTION, doubted
