"""Carries the planned disturbances out, one after another, each as soon as the program has worked for a while again.

The owner calls `step` often. A step never waits: what lasts longer ends in a later step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from fencepost.counting import counted
from fencepost.tap.running import TapThread
from fencepost.verify.history import Event, Fault
from fencepost.verify.nemesis.means import Lasting, TapFault, UserCommand
from fencepost.verify.pipeline.plan import Disturbance, Kind
from fencepost.verify.pipeline.program import Program

NAME = "verifier"
# Two copies run beside each other for so long after a pause.
BESIDE_S = 2.0


class Disturber:
    """`written` grows when the program writes outputs.

    It also grows by a marker in each output partition when a new start aborts the transaction of the one before.
    """

    def __init__(
        self,
        planned: Iterator[Disturbance],
        program: Program,
        tap: TapThread,
        written: Callable[[], int],
        note: Callable[[Event], None],
        say: Callable[[str], None],
        *,
        output_partitions: int,
        longest_pause_s: float,
        hung_after_s: float,
        command: str | None = None,
    ) -> None:
        self._planned, self._program, self._tap, self._written = planned, program, tap, written
        self._note, self._say = note, say
        self._output_partitions, self._longest_pause_s, self._command = output_partitions, longest_pause_s, command
        self._hung_after_s = hung_after_s
        self._lasting: Lasting | None = None
        self._next = next(planned, None)
        self._mark = written()  # Outputs beyond it show that the program works again.
        self._marked_at_s = time.monotonic()
        self._due_s: float | None = None

    def step(self, now_s: float) -> None:
        if self._lasting is not None:
            if self._lasting.is_over(now_s):
                self._finish()
            return
        if self._next is None:
            return
        if self._due_s is None:
            if self.is_program_working:
                self._due_s = now_s + self._next.after_s
            elif now_s > self._marked_at_s + self._hung_after_s:
                self.restart(f"the program wrote nothing for {self._hung_after_s:g} s")
        elif now_s >= self._due_s:
            self._disturb(self._next, now_s)
            self._next, self._due_s = next(self._planned, None), None
            self._set_mark()

    @property
    def is_command_running(self) -> bool:
        """A command of the user's has not ended. It may have to undo what it did."""
        return self._lasting is not None and self._lasting.is_command and not self._lasting.is_over(time.monotonic())

    def end(self) -> None:
        """End what lasts, so that the program can finish its work."""
        self._next = None
        while self._lasting is not None:  # A pause is followed by two copies beside each other.
            self._finish()

    @property
    def is_program_working(self) -> bool:
        """It has written outputs since the last disturbance."""
        return self._works_since(self._mark)

    def restart(self, why: str = "") -> None:
        """SIGKILL, and a new start."""
        self._program.kill(self._program.copies)
        copy = self._program.start()
        self._tell(f"{why}: kill -9, then start {copy.number}" if why else f"kill -9, then start {copy.number}")
        self._set_mark()

    def _set_mark(self) -> None:
        self._mark, self._marked_at_s = self._written(), time.monotonic()

    def _works_since(self, mark: int) -> bool:
        return self._written() > mark + self._output_partitions

    def _finish(self) -> None:
        lasting, self._lasting = self._lasting, None
        assert lasting is not None
        if (fault := lasting.ended(NAME)) is not None:
            self._note(fault)
        self._set_mark()

    def _disturb(self, planned: Disturbance, now_s: float) -> None:
        match planned.kind:
            case Kind.KILL:
                self.restart()
            case Kind.PAUSE:
                self._pause(now_s)
            case Kind.CUT:
                count = self._tap.call(self._cut)
                self._tell(f"cut {count} connections")
            case Kind.DELAY | Kind.LOSE:
                self._fault(planned, now_s)
            case Kind.COMMAND:
                self._run_command()

    def _last(self, is_over: Callable[[float], bool], end: Callable[[], str], is_command: bool = False) -> None:
        self._lasting = Lasting(time.monotonic_ns(), is_over, end, is_command)

    def _tell(self, what: str) -> None:
        self._say(what)
        self._note(Fault(time.monotonic_ns(), NAME, what))

    def _cut(self) -> int:
        links = list(self._tap.tap.links)
        for link in links:
            link.close()
        return len(links)

    def _fault(self, planned: Disturbance, now_s: float) -> None:
        fault = TapFault(self._tap, planned.fault)
        self._say(f"{planned.fault}, for {planned.seconds:.1f} s")
        until_s = now_s + planned.seconds
        self._last(lambda now: now >= until_s, lambda: f"{planned.fault} ({counted(fault.end(), 'time')})")

    def _pause(self, now_s: float) -> None:
        """Pause the program until a second copy works; then both run for a while, and the older one is killed."""
        old = list(self._program.copies)
        for copy in old:
            copy.pause()
        second = self._program.start()
        self._say(f"paused the program; start {second.number} is a second copy")
        mark = self._written()

        def is_over(now: float) -> bool:
            return self._works_since(mark) or now >= now_s + self._longest_pause_s

        def end() -> str:
            for copy in old:
                copy.resume()
            self._say("resumed the first copy: it is a zombie now, if the second has taken over")
            until_s = time.monotonic() + BESIDE_S

            def end_beside() -> str:
                self._program.kill([copy for copy in old if copy in self._program.copies])
                return f"two copies beside each other, then kill -9 of the first; start {second.number} continues"

            self._last(lambda now: now >= until_s, end_beside)
            return f"the program was paused, and start {second.number} was a second copy"

        self._last(is_over, end)

    def _run_command(self) -> None:
        assert self._command is not None
        command = UserCommand(self._command)
        self._say(f"running {self._command}")

        def end() -> str:
            how = command.end()
            self._say(f"ended {how}")
            return how

        self._last(lambda _: command.is_over, end, is_command=True)
