"""The next deadline of every group of a shard, earliest first."""

from __future__ import annotations

from heapq import heappop, heappush


class Deadlines:
    """A deadline that moves to later is left where it is: when it comes up, the group finds that nothing is due."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._due_of: dict[str, int] = {}  # By group. An entry of the heap that differs from it is out of date.

    def note(self, group_id: str, due_ms: int | None) -> None:
        """The group has something to do at `due_ms`, and not before."""
        if due_ms is not None and due_ms < self._due_of.get(group_id, due_ms + 1):
            self._due_of[group_id] = due_ms
            heappush(self._heap, (due_ms, group_id))

    def next_ms(self) -> int | None:
        heap = self._heap
        while heap and self._due_of.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def take_due(self, now_ms: int) -> list[str]:
        """The groups that are due by now, earliest first. Their deadlines are forgotten."""
        due: list[str] = []
        while (due_ms := self.next_ms()) is not None and due_ms <= now_ms:
            _, group_id = heappop(self._heap)
            del self._due_of[group_id]
            due.append(group_id)
        return due
