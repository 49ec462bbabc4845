"""The processes of all clients of a run: started, killed, replaced, stopped, and killed if they hang."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fencepost.verify.history import Fault
from fencepost.verify.nemesis.schedule import NEMESIS
from fencepost.verify.workload.notes import now
from fencepost.verify.workload.plan import ClientPlan, successor_of
from fencepost.verify.workload.process import ClientProcess

TICK_S = 0.05
# A client that notes nothing for so long hangs: it is killed, and its successor ends its transaction.
HANGS_AFTER_S = 25.0
START_S = 30.0
STOP_S = 30.0
SECOND_STOP_S = 60.0


class Fleet:
    """The processes of all clients, by the names of the plan. `settings_of` a client: those of its library."""

    def __init__(
        self,
        clients: Iterable[ClientPlan],
        settings_of: Callable[[ClientPlan], Mapping[str, Any]],
        seed: int,
        folder: Path,
        note: Callable[[Fault], None],
    ) -> None:
        self._settings_of = settings_of
        self._seed = seed
        self._folder = folder
        self._note = note
        self._by_name = {each.name: self._process(each) for each in clients}
        self._zombies: dict[str, ClientProcess] = {}
        self._retired: list[ClientProcess] = []
        self._successors = 0
        self._progress: dict[str, tuple[int, float]] = {}  # The size of each part, and since when it has it.

    def _process(self, plan: ClientPlan) -> ClientProcess:
        return ClientProcess(plan, self._settings_of(plan), self._seed, self._folder)

    @property
    def noted_bytes(self) -> int:
        return sum(each.noted_bytes for each in self._all())

    def _all(self) -> list[ClientProcess]:
        return [*self._by_name.values(), *self._zombies.values(), *self._retired]

    def start(self) -> None:
        """Start all, and wait until each has begun; one that cannot begin goes on to try it."""
        for client in self._by_name.values():
            client.start()
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and not all(each.noted_bytes for each in self._by_name.values()):
            self.check()
            time.sleep(TICK_S)

    def check(self) -> None:
        """Raises ClientFailed if one has ended by itself. One that hangs is killed and started again."""
        for client in self._all():
            client.check()
        for name, client in self._by_name.items():
            size, at = client.noted_bytes, time.monotonic()
            before, since = self._progress.get(client.name, (-1, at))
            if size != before or client.is_paused:
                self._progress[client.name] = size, at
            elif at - since > HANGS_AFTER_S and client.plan.role != "reader":
                del self._progress[client.name]
                self.kill(name)
                what = f"killed {client.name}, which noted nothing for {HANGS_AFTER_S:g} s"
                self._note(Fault(now(), NEMESIS, what))

    def kill(self, name: str) -> None:
        client = self._by_name[name]
        if not client.is_paused:
            client.kill()
            client.start()

    def pause(self, name: str) -> bool:
        client = self._by_name[name]
        if client.is_paused or not client.is_running:
            return False
        client.pause()
        return True

    def resume(self, name: str) -> None:
        self._by_name[name].resume()

    def replace(self, name: str) -> Callable[[], bool] | None:
        zombie = self._by_name[name]
        if zombie.is_paused or not zombie.is_running or name in self._zombies:
            return None
        zombie.pause()
        self._zombies[name] = zombie
        self._successors += 1
        successor = self._process(successor_of(zombie.plan, self._successors))
        self._by_name[name] = successor
        successor.start()
        # The first thing that a client notes is that it was initialised.
        return lambda: successor.noted_bytes > 0

    def let_zombie_go(self, name: str) -> None:
        zombie = self._zombies.pop(name)
        zombie.retire()
        zombie.resume()
        self._retired.append(zombie)

    def stop(self, say: Callable[[str], None]) -> None:
        """Stop every client after its transaction. One that hangs is killed, and its successor ends its transaction."""
        for name in list(self._zombies):
            self._await_successor(name)
            self.let_zombie_go(name)
        started = [client for client in self._all() if client.is_running]
        for client in started:
            client.ask_to_stop()
        self._await(started, STOP_S)
        hanging = [client for client in started if client.is_running]
        for client in hanging:
            say(f"{client.name} does not end, and is killed")
            client.kill()
            if client not in self._retired:
                client.start()
                client.ask_to_stop()
        self._await(hanging, SECOND_STOP_S)

    def kill_all(self) -> None:
        for client in self._all():
            client.kill()

    def _await_successor(self, name: str) -> None:
        """A zombie whose successor is not initialised could still commit: it is killed, and its outcome stays open."""
        deadline = time.monotonic() + STOP_S
        while not self._by_name[name].noted_bytes:
            if time.monotonic() > deadline:
                self._zombies[name].kill()
                return
            time.sleep(TICK_S)

    def _await(self, clients: Sequence[ClientProcess], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for client in clients:
            client.ends_within(deadline - time.monotonic())
