"""Carries out the faults of a schedule: on the tap, on the processes of clients, and by commands of the user.

`Nemesis.step` is called again and again while the run goes on; it never waits long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from fencepost.counting import counted
from fencepost.tap.running import TapThread
from fencepost.verify.history import Fault
from fencepost.verify.nemesis.means import TapFault, UserCommand
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


class Running(NamedTuple):
    """A fault that goes on: `is_over` says when it ends, and `end` ends it."""

    action: FaultAction
    began: int
    is_over: Callable[[float], bool]
    end: Callable[[], str]


class Nemesis:
    def __init__(
        self, actions: Sequence[FaultAction], tap: TapThread, clients: Clients, note: Callable[[Fault], None]
    ) -> None:
        self._left = list(actions)
        self._tap = tap
        self._clients = clients
        self._note = note
        self._running: list[Running] = []

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
        for running in [each for each in self._running if each.action.kind != COMMAND]:
            self._end(running)

    def stop(self) -> None:
        """End all faults now."""
        self.end_all_but_commands()
        for running in list(self._running):
            self._end(running)

    def _end(self, running: Running) -> None:
        self._running.remove(running)
        what = running.end()
        if what:
            self._note(Fault(running.began, NEMESIS, what, (now() - running.began) / 1e9))

    def _begin(self, action: FaultAction, at_s: float) -> None:
        began, until_s = now(), at_s + action.seconds
        if action.kind == KILL:
            self._clients.kill(action.what)
            self._note(Fault(began, NEMESIS, f"killed {action.what}"))
        elif action.kind == PAUSE:
            if self._clients.pause(action.what):
                self._go_on(action, began, lambda at: at >= until_s, lambda: self._resumed(action.what))
        elif action.kind == ZOMBIE:
            name = action.what
            is_replaced = self._clients.replace(name)
            if is_replaced is not None:
                self._go_on(action, began, lambda at: at >= until_s and is_replaced(), lambda: self._let_go(name))
        elif action.kind in (NETWORK, ERRORS):
            fault = TapFault(self._tap, action.what)
            self._go_on(action, began, lambda at: at >= until_s, lambda: self._cleared(fault, action.what))
        else:
            assert action.kind == COMMAND, action
            self._run(action, began)

    def _go_on(self, action: FaultAction, began: int, is_over: Callable[[float], bool], end: Callable[[], str]) -> None:
        self._running.append(Running(action, began, is_over, end))

    def _resumed(self, name: str) -> str:
        self._clients.resume(name)
        return f"paused {name}"

    def _let_go(self, name: str) -> str:
        self._clients.let_zombie_go(name)
        return f"replaced {name} while it was paused"

    def _cleared(self, fault: TapFault, words: str) -> str:
        hits = fault.end()
        return f"{words} ({counted(hits, 'time')})" if hits else ""

    def _run(self, action: FaultAction, began: int) -> None:
        command = UserCommand(action.what)
        self._go_on(action, began, lambda _: command.is_over, command.end)
