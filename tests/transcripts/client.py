"""The client that sends the requests of a transcript, and what it remembers from one step to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fencepost.protocol.messages import FindCoordinatorRequest
from fencepost.protocol.schema import Message
from tests.transcripts.names import Names
from tests.transcripts.target import Target

# Called with the client and the words of a line; gives the words of the reply.
Command = Callable[..., Iterator[str]]
# How often a broker that works at its own pace is asked again, and how long it is given before each time.
PATIENCE, PAUSE_MS = 200, 20


class Client:
    """`version` is that of the step's own request, `members` are the member ids that it got, by their names."""

    def __init__(self, target: Target, names: Names) -> None:
        self.target = target
        self.names = names
        self.version = 0
        self.members: dict[str, str] = {"": ""}
        self._known_groups: set[str] = set()

    def call(self, request: Message, version: int | None = None) -> Any:
        """The reply to a request, by default in the version of the step."""
        return self.target.call(request, self.version if version is None else version)

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        for _ in range(PATIENCE):
            if is_done():
                return
            self.target.advance(PAUSE_MS)

    def group(self, name: str) -> str:
        """The full name of a group. Looks for its coordinator first, as every client does."""
        group = self.names.full(name)
        while group and group not in self._known_groups:
            reply = self.call(FindCoordinatorRequest(group, 0), 1)
            if reply.error_code == 0:
                self._known_groups.add(group)
            else:
                self.target.advance(50)
        return group
