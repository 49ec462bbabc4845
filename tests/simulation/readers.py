"""Clients that only read."""

from __future__ import annotations

from fencepost.protocol import errors
from fencepost.protocol.topic_partition import TopicPartition
from tests.simulation.clients import Instance, Role, Steps
from tests.simulation.history import Follower, Violation
from tests.simulation.reading import FETCH_VERSION, fetch_request, offset_fetch, partitions_of, read


class Reader(Instance):
    """Reads partitions to their ends, and keeps all records that it delivered to its application."""

    is_mortal = False
    letter = "r"

    def __init__(self, role: Role, name: str, places: list[TopicPartition], read_committed: bool) -> None:
        super().__init__(role, name)
        self.follower = Follower(name, read_committed, dict.fromkeys(places, 0))
        self.world.history.follow(self.follower)

    def steps(self) -> Steps:
        rng, follower = self.rng, self.follower
        while True:
            if not self.world.is_settled:
                yield 1500 if self.world.is_calm else rng.randint(20, 300)
            max_bytes = 1 << 20 if self.world.is_settled else rng.choice((100, 300, 1000, 5000))
            wait_ms = 0 if self.world.is_calm else rng.choice((0, 0, 100))
            losses = self.world.broker.losses
            request = fetch_request(follower.positions, follower.read_committed, max_bytes, wait_ms)
            response = yield request, FETCH_VERSION
            if response is None or losses != self.world.broker.losses:
                continue  # A power loss changes the positions, so a response from before it is dropped.
            before = dict(follower.positions)
            for where, fetched in partitions_of(response):
                if fetched.error_code:
                    raise Violation("fetch", f"{self.name}: {where} says {errors.name_of(fetched.error_code)}")
                reads, follower.positions[where] = read(
                    where, fetched, follower.positions[where], follower.read_committed
                )
                if follower.positions[where] != before[where]:
                    self.world.history.poll(self.name, where, reads, follower.positions[where])
            if self.world.is_settled and before == follower.positions:
                return


class Observer(Instance):
    """Asks for the group's offsets, as a dashboard would. `World.answered` checks the answers."""

    is_mortal = False
    letter = "o"

    def __init__(self, role: Role, name: str, places: list[TopicPartition]) -> None:
        super().__init__(role, name)
        self._places = places

    def steps(self) -> Steps:
        while not self.world.is_calm:
            yield self.rng.randint(20, 300)
            yield offset_fetch(self.world.group, self._places, require_stable=False), 8
