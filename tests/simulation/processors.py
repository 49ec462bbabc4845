"""Consume, process, produce: clients that commit their offsets in their transactions.

There are two ways to keep a zombie from processing a record again. `Processor`: all instances share a transactional.id,
so that a new instance fences the old one. `GroupProcessor` (KIP-447): each instance has its own, and the generation of
the consumer group fences.
"""

from __future__ import annotations

from typing import Any

from fencepost.protocol import errors
from fencepost.protocol.messages import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.protocol.transaction_version import TransactionVersion
from tests.simulation.clients import MustAbort, Over, Role, Steps, error_code
from tests.simulation.history import INPUTS, Read, Violation
from tests.simulation.producers import Producer
from tests.simulation.reading import (
    FETCH_VERSION,
    fetch_request,
    fetched_offsets,
    offset_fetch,
    offset_fetch_error,
    partitions_of,
    read,
)

SESSION_TIMEOUT_MS = 250
REBALANCE_TIMEOUT_MS = 300


class Processor(Producer):
    """Writes one output record for each input record, in one transaction with the offsets."""

    letter = "p"

    def __init__(
        self,
        role: Role,
        name: str,
        transaction_version: TransactionVersion,
        inputs: list[TopicPartition],
        outputs: list[TopicPartition],
    ) -> None:
        super().__init__(role, name, transaction_version)
        self.generation_id = -1
        self.member_id = ""
        self._inputs = inputs
        self._outputs = outputs
        self._positions: dict[TopicPartition, int] = {}
        self._losses = 0

    def steps(self) -> Steps:
        rng = self.rng
        yield from self.init()
        yield from self._load_positions()
        while not self.world.is_calm:
            yield rng.randint(1, 80)
            if self._losses != self.world.broker.losses:
                yield from self._load_positions()
            taken = yield from self._poll()
            if taken and not (yield from self._process(taken)):
                yield from self._load_positions()

    def _process(self, taken: dict[TopicPartition, list[Read]]) -> Steps:
        """Run one transaction; return whether it was committed."""
        rng = self.rng
        attempt = self.begin()
        commit = rng.random() < 0.85
        try:
            for where, reads in taken.items():
                sources = [(*where, each.offset) for each in reads]
                yield from self.produce(attempt, rng.choice(self._outputs), sources)
            offsets = {where: reads[-1].offset + 1 for where, reads in taken.items()}
            yield from self.commit_offsets(attempt, self.world.group, offsets, self.generation_id, self.member_id)
        except MustAbort:
            commit = False
        yield from self.end(attempt, commit)
        return commit

    def _load_positions(self) -> Steps:
        self._losses = self.world.broker.losses
        request = offset_fetch(self.world.group, self._inputs, require_stable=True)
        response, error, _ = yield from self.ask(request, 8, offset_fetch_error, 60)
        if error:
            raise Over(f"OffsetFetch {errors.name_of(error)}")
        self._positions = {where: max(offset, 0) for where, offset in fetched_offsets(response).items()}

    def _poll(self) -> Steps:
        request = fetch_request(self._positions, True, self.rng.choice((200, 500, 5000)), self.rng.choice((0, 50)))
        response = yield request, FETCH_VERSION
        taken: dict[TopicPartition, list[Read]] = {}
        if response is None or self._losses != self.world.broker.losses:
            return taken
        for where, fetched in partitions_of(response):
            if fetched.error_code == errors.OFFSET_OUT_OF_RANGE and not self.world.history.is_forgetful:
                raise Violation("fetch", f"{self.name}: {where} has no offset {self._positions[where]}")
            if fetched.error_code:
                continue
            reads, position = read(where, fetched, self._positions[where], read_committed=True)
            most = self.rng.randint(1, 4)
            if len(reads) > most:
                reads, position = reads[:most], reads[most].offset
            self._positions[where] = position
            if reads:
                taken[where] = reads
        return taken


class GroupProcessor(Processor):
    """A member of the group: reads its assigned inputs and has its own transactional.id."""

    letter = "g"

    def __init__(
        self, role: Role, name: str, transaction_version: TransactionVersion, outputs: list[TopicPartition]
    ) -> None:
        super().__init__(role, name, transaction_version, [], outputs)
        self.transactional_id = name

    def steps(self) -> Steps:
        yield from self.init()
        while not self.world.is_calm:
            yield from self._join()
            if self._inputs:
                yield from self._load_positions()
            while not self.world.is_calm and (yield from self._is_still_in()):
                yield self.rng.randint(1, 100)
                if self._losses != self.world.broker.losses:
                    break
                taken = (yield from self._poll()) if self._inputs else {}
                if taken and not (yield from self._process(taken)):
                    break

    def _is_still_in(self) -> Steps:
        request = HeartbeatRequest(self.world.group, self.generation_id, self.member_id)
        response, error, _ = yield from self.ask(request, 3, error_code, 3)
        if response is None or error:
            self._forget_membership(error)
            return False
        return True

    def _forget_membership(self, error: int) -> None:
        if error == errors.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    def _join(self) -> Steps:
        for _ in range(30):
            request = JoinGroupRequest(
                self.world.group,
                SESSION_TIMEOUT_MS,
                REBALANCE_TIMEOUT_MS,
                self.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequest.JoinGroupRequestProtocol("range", b"")],
            )
            response, error, _ = yield from self.ask(request, 5, error_code, 20)
            if response is None:
                break
            if error == errors.NONE:
                self.member_id, self.generation_id = response.member_id, response.generation_id
                assigned = yield from self._sync(response)
                if assigned is not None:
                    self._inputs = [place for place in INPUTS if str(place[1]) in assigned]
                    self.world.note(self.name, "has %s in generation %s", self._inputs, self.generation_id)
                    return
            elif error == errors.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
            else:
                self._forget_membership(error)
            yield self.rng.randint(1, 50)
        raise Over("it cannot join the group")

    def _sync(self, joined: Any) -> Steps:
        """The indexes of its assigned input partitions, as text; None if it has to join again."""
        assignments = []
        if joined.leader == self.member_id:
            members = [member.member_id for member in joined.members]
            shares = dict.fromkeys(members, "")
            for _, index in INPUTS:
                shares[self.rng.choice(members)] += str(index)
            kind = SyncGroupRequest.SyncGroupRequestAssignment
            assignments = [kind(member, share.encode()) for member, share in shares.items()]
        request = SyncGroupRequest(self.world.group, self.generation_id, self.member_id, assignments=assignments)
        response, error, _ = yield from self.ask(request, 3, error_code, 5)
        if response is None or error:
            self._forget_membership(error)
            return None
        return bytes(response.assignment).decode()
