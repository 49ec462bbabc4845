"""Runs transcripts (`parsing.py` says how they are written) and compares the replies and states with theirs.

`commands` has one function for each command. An independent broker works at its own pace, so steps that only look, and
those that are answered while it is busy, are tried again.
"""

from __future__ import annotations

from fencepost.machines.txn.states import BY_KAFKA_NAME
from tests.transcripts.client import PATIENCE, PAUSE_MS, Client, Command
from tests.transcripts.commands import groups, looking, surroundings, transactions
from tests.transcripts.names import Names
from tests.transcripts.parsing import Step, Transcript
from tests.transcripts.target import Target

COMMANDS: dict[str, Command] = surroundings.COMMANDS | transactions.COMMANDS | looking.COMMANDS | groups.COMMANDS
UNSTABLE_STATES = ("PrepareCommit", "PrepareAbort")
# The answers of a broker that has not finished something else yet.
BUSY = {
    "CONCURRENT_TRANSACTIONS",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "NOT_ENOUGH_REPLICAS",
    "NOT_LEADER_OR_FOLLOWER",
}
# The commands that change nothing, so that they can be tried again.
LOOKING = {"describe", "ends", "fetch-offset", "list", "log", "producers", "read"}


class Mismatch(AssertionError):
    pass


def run(transcript: Transcript, target: Target, prefix: str = "") -> Client:
    """Run every step; return the client, which knows the numbers of the producer ids."""
    stage = Stage(target, Names(prefix), transcript.versions)
    for step in transcript.steps:
        try:
            stage.run(step)
        except Mismatch as e:
            raise Mismatch(f"{transcript.name}.txt:{step.line}: {step.text}\n  {e}") from None
        except Exception as e:
            raise AssertionError(f"{transcript.name}.txt:{step.line}: {step.text}\n  {e!r}") from e
    return stage.client


class Stage:
    """One run of one transcript: asks what its steps say, and compares.

    `versions` are those of the requests whose steps name no version.
    """

    def __init__(self, target: Target, names: Names, versions: dict[str, int]) -> None:
        self.client = Client(target, names)
        self._versions = versions

    def run(self, step: Step) -> None:
        target = self.client.target
        expected = step.expected
        if target.is_apache and step.kafka_expected is not None:
            expected = step.kafka_expected
        words, state = expected, None
        if expected and expected[-1] in (*BY_KAFKA_NAME, "unknown"):
            words, state = expected[:-1], expected[-1]
        for _ in range(PATIENCE if target.is_independent else 1):
            actual = self.answer(step)
            is_right = words is None or self.client.names.agree(words, actual)
            # An independent broker may still be busy with the previous transaction or with its start.
            is_busy = bool(BUSY.intersection(actual) - set(words or ()))
            if not is_busy and (is_right or step.command not in LOOKING):
                break
            target.advance(PAUSE_MS)
        if not is_right:
            raise Mismatch(f"got -> {' '.join(actual)}")
        if state is not None:
            self._check_state(step.words[0], state)

    def answer(self, step: Step) -> list[str]:
        """Send the request of a step; the words of its reply."""
        self.client.version = self._versions.get(step.command, 0) if step.version is None else step.version
        return list(COMMANDS[step.command](self.client, *step.words))

    def _check_state(self, transactional_id: str, expected: str) -> None:
        target = self.client.target
        allowed = {expected}
        if target.is_independent and expected in UNSTABLE_STATES:
            allowed.add(expected.replace("Prepare", "Complete"))
        actual = looking.state_of(self.client, transactional_id)
        for _ in range(PATIENCE if target.is_independent else 0):
            if actual in allowed:
                break
            target.advance(PAUSE_MS)
            actual = looking.state_of(self.client, transactional_id)
        if actual not in allowed:
            raise Mismatch(f"{transactional_id} is {actual}")
