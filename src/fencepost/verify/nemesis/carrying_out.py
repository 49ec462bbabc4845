"""Carries out the faults of a schedule: on the tap, on the processes of clients, and by commands of the user.

`Nemesis.step` is called again and again while the run goes on; it never waits long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from fencepost.counting import counted
from fencepost.tap.running import TapThread
from fencepost.verify.history import Fault
from fencepost.verify.nemesis.means import Lasting, TapFault, UserCommand
from fencepost.verify.nemesis.schedule import COMMAND, ERRORS, KILL, NEMESIS, NETWORK, PAUSE, ZOMBIE, FaultAction
from fencepost.verify.workload.notes import now


class Clients(Protocol):
    """The clients of the run by name. An order to a client that is not there, or is paused, does nothing."""

    def kill(self, name: str) -> None: ...

    def pause(self, name: str) -> bool: ...

    def resume(self, name: str) -> None: ...

    def replace(self, name: str) -> Callable[[], bool] | None:
        """Pause it and start another with its id. Returns a question: whether the other has been initialised."""
        ...

    def let_zombie_go(self, name: str) -> None: ...


class Nemesis:
    def __init__(
        self, actions: Sequence[FaultAction], tap: TapThread, clients: Clients, note: Callable[[Fault], None]
    ) -> None:
        self._left = list(actions)
        self._tap = tap
        self._clients = clients
        self._note = note
        self._running: list[Lasting] = []

    def step(self, at_s: float) -> None:
        """Begin and end what is due at this time, in seconds since the start of the run."""
        for running in [each for each in self._running if each.is_over(at_s)]:
            self._end(running)
        while self._left and self._left[0].at_s <= at_s:
            self._begin(self._left.pop(0), at_s)

    @property
    def is_disturbing(self) -> bool:
        """Whether a fault goes on."""
        return bool(self._running)

    def end_all_but_commands(self) -> None:
        """Begin no more faults, and end those of the verifier. A command of the user's may have to undo what it did."""
        self._left.clear()
        for running in [each for each in self._running if not each.is_command]:
            self._end(running)

    def stop(self) -> None:
        """End all faults now."""
        self.end_all_but_commands()
        for running in list(self._running):
            self._end(running)

    def _end(self, running: Lasting) -> None:
        self._running.remove(running)
        if (fault := running.ended(NEMESIS)) is not None:
            self._note(fault)

    def _begin(self, action: FaultAction, at_s: float) -> None:
        began, until_s, name = now(), at_s + action.seconds, action.what

        def is_over(at_s: float) -> bool:
            return at_s >= until_s

        if action.kind == KILL:
            self._clients.kill(name)
            self._note(Fault(began, NEMESIS, f"killed {name}"))
        elif action.kind == PAUSE:
            if self._clients.pause(name):
                self._running.append(Lasting(began, is_over, lambda: self._resumed(name)))
        elif action.kind == ZOMBIE:
            is_replaced = self._clients.replace(name)
            if is_replaced is not None:
                then = Lasting(began, lambda at: is_over(at) and is_replaced(), lambda: self._let_go(name))
                self._running.append(then)
        elif action.kind in (NETWORK, ERRORS):
            fault = TapFault(self._tap, name)
            self._running.append(Lasting(began, is_over, lambda: self._cleared(fault, name)))
        else:
            assert action.kind == COMMAND, action
            command = UserCommand(name)
            self._running.append(Lasting(began, lambda _: command.is_over, command.end, is_command=True))

    def _resumed(self, name: str) -> str:
        self._clients.resume(name)
        return f"paused {name}"

    def _let_go(self, name: str) -> str:
        self._clients.let_zombie_go(name)
        return f"replaced {name} while it was paused"

    def _cleared(self, fault: TapFault, words: str) -> str:
        hits = fault.end()
        return f"{words} ({counted(hits, 'time')})" if hits else ""
