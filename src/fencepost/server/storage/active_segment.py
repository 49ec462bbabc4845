"""The segment that a log appends to, and the limits beyond which it needs another one."""

from __future__ import annotations

from contextlib import suppress

from fencepost.machines.log.interface import LogConfig
from fencepost.server.storage.log_files import LogFiles
from fencepost.server.storage.segment import Segment

_NEVER = 1 << 62
_MAX_RELATIVE_OFFSET = (1 << 31) - 1


class ActiveSegment:
    """`segment` is None until the first append after a start. Methods may raise OSError.

    A batch with a greater last offset or timestamp than `above_offset` and `above_timestamp` does not go into
    `segment`, nor does one that would make it larger than `segment_bytes`.
    """

    __slots__ = (
        "_config",
        "_files",
        "_topic_id",
        "above_offset",
        "above_timestamp",
        "has_rolled",
        "segment",
        "segment_bytes",
    )

    def __init__(self, files: LogFiles, topic_id: bytes, config: LogConfig) -> None:
        self.segment: Segment | None = None
        self.above_offset = -1
        self.above_timestamp = -_NEVER
        self.segment_bytes = config.segment_bytes
        self.has_rolled = False  # Since the last snapshot.
        self._files = files
        self._topic_id = topic_id
        self._config = config

    def configure(self, config: LogConfig) -> None:
        if abs(self.above_timestamp) != _NEVER:
            self.above_timestamp += config.segment_ms - self._config.segment_ms
        self._config = config
        self.segment_bytes = config.segment_bytes

    def fenced(self, files: LogFiles) -> ActiveSegment:
        """What a handle on the log has once another one has taken it over: no segment, and files without any."""
        return ActiveSegment(files, self._topic_id, self._config)

    def find(self, size: int, base_offset: int, last_offset: int, max_timestamp: int) -> Segment:
        """The segment for a batch: the active one, found again after a start, or a new one."""
        segment = self._take_up()
        if segment is None or self._is_full_for(segment, size, last_offset, max_timestamp):
            segment = self._begin(base_offset)
        if segment.size == 0:
            self.above_timestamp = max_timestamp + self._config.segment_ms if max_timestamp >= 0 else _NEVER
        return segment

    def roll(self, end_offset: int) -> None:
        """Begin a new segment, unless the active one is empty."""
        segment = self._take_up()
        if segment is not None and segment.size:
            self._begin(end_offset)
            self.above_timestamp = -_NEVER  # `find` sets it for the first batch.

    def _is_full_for(self, segment: Segment, size: int, last_offset: int, max_timestamp: int) -> bool:
        if last_offset > self.above_offset:
            return True
        return segment.size > 0 and (segment.size + size > self.segment_bytes or max_timestamp > self.above_timestamp)

    def _take_up(self) -> Segment | None:
        """The active segment; after a start, the last one of the log."""
        segment = self.segment
        if segment is None and self._files.segments:
            segment = self._files.segments[-1]
            segment.take_up()
            self.above_offset = segment.base_offset + _MAX_RELATIVE_OFFSET
            self.above_timestamp = _NEVER
            if segment.size:
                # Kafka: a segment's age is counted from its first batch's timestamp.
                first_timestamp = next(segment.walk(0))[4]
                if first_timestamp >= 0:
                    self.above_timestamp = first_timestamp + self._config.segment_ms
            self.segment = segment
        return segment

    def _begin(self, base_offset: int) -> Segment:
        old = self.segment
        if old is None:
            self._files.create_directory(self._topic_id)
        else:
            with suppress(OSError):  # The entries wait in memory, at worst until recovery derives them again.
                old.indexes.seal()
        segment = self._files.create_segment(base_offset)
        if old is None and self._files.folder is not None:
            self._files.folder.log_begun(self._files.name, self._topic_id)
        self.segment = segment
        self.above_offset = base_offset + _MAX_RELATIVE_OFFSET
        self.has_rolled = old is not None
        return segment
