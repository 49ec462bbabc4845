"""One run: feeds inputs while the program is disturbed, waits for its outputs, stops it, and reads what is there.

Everything that the run sees goes into its history. One thread does it all, in short steps.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.offsets import committed_offsets
from fencepost.client.admin.partitions import LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.tap.running import TapThread
from fencepost.verify.history import Assign, Committed, Event, Fault, Poll, Rest, Watermarks
from fencepost.verify.nemesis.means import WAITS
from fencepost.verify.pipeline.disturber import NAME, Disturber
from fencepost.verify.pipeline.feeder import Feeder
from fencepost.verify.pipeline.inputs import Matching, input_id, input_value
from fencepost.verify.pipeline.plan import ALL_KINDS, disturbances, input_groups
from fencepost.verify.pipeline.program import Copy, Program, ended_how
from fencepost.verify.pipeline.reader import USUAL_S, CommittedReader, Patience, patience_for

INPUTS, OUTPUTS = "inputs", "outputs"
STEP_S = 0.02
SAY_EVERY_S = 5.0
RESTART_PAUSE_S = 0.2
# The program does not fall further behind than so many seconds of inputs, so that the run ends soon after them.
MOST_WAITING_S = 5.0
# Starts in a row that end without an output.
MOST_FAILED_STARTS = 5
# How long the last reads wait for a cluster that does not answer.
READ_S = 60.0
COMMITTED_READ = "read_committed"


class PipelineFailed(Exception):
    """The run tells nothing about the program. The message ends with a hint."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.problem, self.hint = problem, hint


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    input: str
    outputs: tuple[str, ...]
    tag: str
    seed: int
    group: str | None = None
    seconds: float = 60.0  # From the first output on.
    kinds: tuple[str, ...] = ALL_KINDS
    every_s: float = 5.0
    rate: float = 100.0  # Inputs in a second.
    inputs: str = "mixed"  # A name of `plan.SHARES`.
    template: str = "{id}"
    match: str | None = None
    settle_s: float = 15.0
    first_output_s: float = 60.0
    longest_pause_s: float = 60.0
    hung_after_s: float = 60.0
    stop_s: float = 10.0
    command: str | None = None  # The user's disturbance.


@dataclass(slots=True)
class SeenOutputs:
    """What came out so far."""

    by_topic: dict[str, Counter[str]] = field(default_factory=dict)
    without_id: int = 0
    sample: str = ""


class PipelineRun:
    """`play` returns when the program has stopped and the history has all that the judge needs."""

    def __init__(
        self,
        options: PipelineOptions,
        client: KafkaClient,
        program: Program,
        tap: TapThread,
        note: Callable[[Event], None],
        say: Callable[[str], None],
    ) -> None:
        self._options, self._client, self._program, self._tap = options, client, program, tap
        self._note, self._say = note, say
        self._matching = Matching(options.tag, options.match)
        self._own = Matching(options.tag)
        self._outputs = self._reader(OUTPUTS, options.outputs)
        self._inputs = self._reader(INPUTS, [options.input])
        self._feeder = Feeder(
            client,
            options.input,
            input_groups(options.seed, options.inputs),
            lambda number: input_id(options.tag, number),
            lambda id_: input_value(options.template, id_),
            note,
        )
        self._disturber = Disturber(
            disturbances(options.seed, options.every_s, options.kinds),
            program,
            tap,
            lambda: self._outputs.written,
            note,
            say,
            output_partitions=len(self._outputs.positions),
            longest_pause_s=options.longest_pause_s,
            hung_after_s=options.hung_after_s,
            command=options.command,
        )
        self.seen = SeenOutputs({topic: Counter() for topic in options.outputs})
        self._wanted: set[str] = set()
        self._failed_starts = 0
        self._restart_at_s: float | None = None
        self._written_at_start = 0
        self._said_at_s = 0.0

    def play(self) -> None:
        """Raises PipelineFailed, NotStarted and ClientError. Ctrl-C ends the run early, and what was seen is noted."""
        is_settled = False
        self._written_at_start = self._outputs.written
        try:
            self._program.start()
            if self._first_output():
                self._disturb()
                self._await_command()
            self._disturber.end()
            is_settled = self._settle()
        except KeyboardInterrupt:
            self._say("interrupted: stopping the program; what was seen is judged")
            self._note(Fault(time.monotonic_ns(), NAME, "the run was interrupted"))
        finally:
            self._disturber.end()
            if not self._program.stop(self._options.stop_s):
                self._say(f"the program did not end within {self._options.stop_s:g} s of SIGTERM: killed")
        if is_settled:
            is_settled = self._await_ends()
        self._read_outputs()
        self._read_inputs()
        if is_settled:
            self._require_ends()
            self._note(Rest(time.monotonic_ns(), NAME))
        self._note_rest()

    # --- phases ---------------------------------------------------------------------------------------------

    def _first_output(self) -> bool:
        """Feed until the program has written something; False if it ended before, again and again."""
        before, began = self._outputs.written, time.monotonic()
        while self._outputs.written == before:
            now = time.monotonic()
            if now > began + self._options.first_output_s:
                raise self._nothing_came()
            if not self._step(now, began):
                return False
        self._say(f"the first output came after {time.monotonic() - began:.1f} s")
        return True

    def _disturb(self) -> None:
        began = time.monotonic()
        while (now := time.monotonic()) < began + self._options.seconds:
            if not self._step(now, began):
                return
            self._disturber.step(now)

    def _await_command(self) -> None:
        if self._disturber.is_command_running:
            self._say(WAITS)
        while self._disturber.is_command_running:
            now = time.monotonic()
            self._read_outputs()
            self._tend(now)
            self._report(now)
            time.sleep(STEP_S)

    def _settle(self) -> bool:
        """Wait until all outputs are there, or nothing moves any more, also after one more start.

        Inputs that a transaction holds back are waited for, while the program runs: the markers of a commit that was
        answered may still be on their way.
        """
        self._read_inputs()
        self._say(f"{self._feeder.fed} inputs are written, {len(self._wanted)} of them committed; waiting for outputs")
        state = (-1, -1)
        since, is_last_start = time.monotonic(), False
        while not self._is_complete():
            now = time.monotonic()
            # Only the run's own records count: others may be written to the topics for ever.
            moved = (len(self._wanted), sum(counted.total() for counted in self.seen.by_topic.values()))
            if moved != state:
                state, since = moved, now
            patience = self._patience_s()
            if now > since + patience:
                if is_last_start:
                    self._say(f"nothing has moved for {patience:g} s")
                    break
                # A program that hangs shows here what it can do, and one that skipped inputs does not get them back.
                self._disturber.restart(f"outputs are missing, and nothing has moved for {patience:g} s")
                since, is_last_start = now, True
            self._read_inputs()
            self._read_outputs()
            self._tend(now)
            self._report(now)
            time.sleep(STEP_S)
        return True

    def _patience_s(self) -> float:
        """How long nothing may move. A new start may have to wait until the group notices that the old one is gone."""
        if self._inputs.is_held_back or self._outputs.is_held_back:
            return USUAL_S
        working = self._disturber.is_program_working
        return self._options.settle_s if working else max(self._options.settle_s, self._options.hung_after_s)

    def _await_ends(self) -> bool:
        """Wait for transactions that the program left open; False if Ctrl-C ends that."""
        try:
            for reader, read in self._readings():
                read()
                # What others write meanwhile is not waited for.
                ends, patience = dict(reader.high_watermarks), Patience(USUAL_S, "")
                if reader.is_held_back:
                    patience = patience_for(self._client, (NamedPartition(*where) for where in reader.positions))
                    self._say(patience.why)
                deadline = time.monotonic() + patience.seconds
                while not reader.has_read(ends) and time.monotonic() < deadline:
                    time.sleep(STEP_S)
                    read()
        except KeyboardInterrupt:
            self._say("interrupted: what was seen is judged")
            return False
        return True

    def _require_ends(self) -> None:
        """Raises ClientError if what readers can get now was not read: what is missing then need not be missing."""
        for reader, read in self._readings():
            places = [NamedPartition(*where) for where in reader.positions]
            ends = list_offsets(self._client, places, READ_COMMITTED, LATEST).found
            deadline = time.monotonic() + READ_S
            while behind := [place for place in places if reader.positions[place] < ends.get(place, math.inf)]:
                if time.monotonic() > deadline:
                    raise ClientError(f"{behind[0]} could not be read to its end, so the outputs cannot be judged")
                time.sleep(STEP_S)
                ends = list_offsets(self._client, behind, READ_COMMITTED, LATEST).found | ends
                read()

    def _readings(self) -> Iterable[tuple[CommittedReader, Callable[[], None]]]:
        return (self._outputs, self._read_outputs), (self._inputs, self._read_inputs)

    def _note_rest(self) -> None:
        for reader in (self._inputs, self._outputs):
            for (topic, partition), end in reader.high_watermarks.items():
                stable = reader.last_stable_offsets[topic, partition]
                self._note(Watermarks(time.monotonic_ns(), NAME, topic, partition, stable, end))
        if self._options.group is not None:
            found = committed_offsets(self._client, self._options.group, list(self._inputs.positions))
            offsets = [(topic, partition, offset) for (topic, partition), (offset, _) in sorted(found.items())]
            self._note(Committed(time.monotonic_ns(), NAME, self._options.group, offsets))

    # --- one step -------------------------------------------------------------------------------------------

    def _step(self, now: float, began: float) -> bool:
        """Feed what is due, read, and keep the program running; False if it keeps failing."""
        waiting = self._feeder.due - min(len(counted) for counted in self.seen.by_topic.values())
        if self._feeder.fed < self._options.rate * (now - began) and waiting < self._options.rate * MOST_WAITING_S:
            self._feeder.feed()
        else:
            time.sleep(STEP_S)
        self._read_outputs()
        self._report(now)
        return self._tend(now)

    def _tend(self, now: float) -> bool:
        """Start the program again if it has ended, as a supervisor does; False if that does not help."""
        for copy in self._program.take_ended():
            self._ended(copy, now)
        if self._program.copies or self._failed_starts >= MOST_FAILED_STARTS:
            return bool(self._program.copies)
        if self._restart_at_s is not None and now < self._restart_at_s:
            return True
        self._written_at_start = self._outputs.written
        self._program.start()
        return True

    def _ended(self, copy: Copy, now: float) -> None:
        code = copy.exit_code
        assert code is not None
        how = ended_how(code)
        has_worked = self._outputs.written > self._written_at_start
        self._failed_starts = 0 if has_worked or code == 0 else self._failed_starts + 1
        if copy.number == 1 and code != 0 and not has_worked:
            raise PipelineFailed(
                f"the program ended with {how} before it wrote anything; its last lines are:\n"
                f"{self._program.last_lines()}",
                "does it run without the verifier? {bootstrap} in the command and $FENCEPOST_BOOTSTRAP are the address "
                "of the cluster for it",
            )
        self._restart_at_s = now + RESTART_PAUSE_S
        what = f"start {copy.number} of the program ended by itself, with {how}"
        if self._failed_starts >= MOST_FAILED_STARTS:
            what += f"; it failed {self._failed_starts} times in a row and is not started again"
        self._say(what)
        self._note(Fault(time.monotonic_ns(), NAME, what))

    def _nothing_came(self) -> PipelineFailed:
        opened = self._tap.tap.opened
        waited = f"no output came in {self._options.first_output_s:g} s"
        if not opened:
            return PipelineFailed(
                f"{waited}, and no client has connected to {self._tap.tap.address}",
                "does the program use the address in {bootstrap} or $FENCEPOST_BOOTSTRAP?",
            )
        return PipelineFailed(
            f"{waited}, although the program has connected; its last lines are:\n{self._program.last_lines()}",
            f"does it read {self._options.input} from the earliest offset and write to "
            f"{', '.join(self._options.outputs)}? --first-output waits for longer",
        )

    def _report(self, now: float) -> None:
        if now >= self._said_at_s + SAY_EVERY_S:
            self._said_at_s = now
            counts = ", ".join(f"{counted.total()} in {topic}" for topic, counted in self.seen.by_topic.items())
            self._say(f"inputs: {self._feeder.fed}; outputs: {counts}; starts: {self._program.starts}")

    # --- reading --------------------------------------------------------------------------------------------

    def _reader(self, name: str, topics: Iterable[str]) -> CommittedReader:
        """From the end that the topics have now."""
        partitions = [NamedPartition(t, p) for t in topics for p in range(len(self._client.topic(t).leaders))]
        ends = list_offsets(self._client, partitions, READ_UNCOMMITTED, LATEST)
        if ends.problems:
            raise PipelineFailed(f"cannot read the ends of the topics: {next(iter(ends.problems))}", "try again")
        start: dict[TopicPartition, int] = {(where.topic, where.partition): ends.found[where] for where in partitions}
        for (topic, partition), offset in start.items():
            self._note(Assign(time.monotonic_ns(), name, COMMITTED_READ, topic, partition, offset))
        return CommittedReader(self._client, start)

    def _read_outputs(self) -> None:
        for (topic, partition), records in self._outputs.poll():
            found = []
            for record in records:
                ids = self._matching.ids(record.key, record.value)
                if not ids:
                    self.seen.without_id += 1
                    self.seen.sample = (record.value or b"")[:120].decode("utf-8", "replace")
                found += [(record.offset, id_) for id_ in ids]
                self.seen.by_topic[topic].update(ids)
            if found:
                self._note(Poll(time.monotonic_ns(), OUTPUTS, topic, partition, found))

    def _read_inputs(self) -> None:
        """What read_committed readers see of the inputs now. What others write meanwhile is read next time."""
        self._poll_inputs()
        ends, before = dict(self._inputs.last_stable_offsets), None
        while self._inputs.positions != before and not self._inputs.has_read(ends):
            before = dict(self._inputs.positions)
            self._poll_inputs()

    def _poll_inputs(self) -> None:
        """One fetch. The keys of the inputs are their ids."""
        for (topic, partition), records in self._inputs.poll():
            found = [(r.offset, id_) for r in records for id_ in self._own.ids(r.key, None)]
            self._wanted |= {id_ for _, id_ in found}
            if found:
                self._note(Poll(time.monotonic_ns(), INPUTS, topic, partition, found))

    def _is_complete(self) -> bool:
        return self._inputs.is_at_end and all(self._wanted <= counted.keys() for counted in self.seen.by_topic.values())
