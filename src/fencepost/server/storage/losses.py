"""A folder that has less than its own records say: it is refused, or the loss is accepted and noted.

`missing.py` has the rules that find missing data.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from fencepost.counting import counted
from fencepost.server.storage.document import METADATA_NAME, REVISION_NAME, Document
from fencepost.server.storage.last_stop import LastStop, Trust
from fencepost.server.storage.missing import DataMissing, Survey, skip_gap, survey_folder
from fencepost.server.storage.offset_files import BegunLogs, OffsetsFile, RecoveryPoints
from fencepost.server.storage.recovery import Report
from fencepost.server.storage.syncing import FolderSync


class Losses:
    """`is_accepted`: whether the folder is opened without what is missing."""

    def __init__(
        self,
        path: str,
        is_accepted: bool,
        last_stop: LastStop,
        recovery_points: RecoveryPoints,
        disk: FolderSync,
        report: Report,
    ) -> None:
        self.is_accepted = is_accepted
        self._path = path
        self._last_stop = last_stop
        self._recovery_points = recovery_points
        self._disk = disk
        self._report = report
        # The recovery points that `_note_proven_ends` replaced: this start checks everything behind them.
        self._synced_ends: dict[str, int] = {}
        self._proven_ends: dict[str, int] = {}

    def look(
        self,
        changed: Sequence[str],
        logs: Iterable[tuple[str, bytes]],
        start_offsets: OffsetsFile,
        begun_logs: BegunLogs,
    ) -> Survey:
        """Compare the folder with its records. Raises DataMissing, unless that is accepted; changes nothing.

        `changed`: a line about each file that is not as the last process left it. `logs`: the names and topic ids of
        the logs that the cluster's document has.
        """
        survey = survey_folder(self._path, logs, self._last_stop, self._recovery_points, start_offsets, begun_logs)
        lines = [*changed, *map(str, survey.missing)]
        if lines and not self.is_accepted:
            raise DataMissing(self._path, lines, is_damaged=any(part.is_damaged for part in survey.missing))
        self._proven_ends = dict(survey.ends)
        return survey

    def look_for_document(self, document: Document, begun_logs: BegunLogs) -> None:
        """There is no document, and no log. Raises DataMissing if a record says otherwise, unless that is accepted.

        Then the start is one after a power loss: clients of the lost cluster may be alive.
        The document is on disk before any log has files, so a log that is named proves that there was one.
        """
        begun = [] if self._last_stop.trust is Trust.OTHER_BOOT else begun_logs.names()
        named = sorted({*self._last_stop.clean_ends, *self._recovery_points.names(), *begun})
        if not named and not document.noted_revision:
            return
        line = f"{METADATA_NAME}: there is no such file; "
        if named:
            line += f"by other files there are {len(named)} logs ({named[0]}" + (" ...)" if len(named) > 1 else ")")
        else:
            line += f"by {REVISION_NAME}, revision {document.noted_revision} was saved"
        if not self.is_accepted:
            raise DataMissing(self._path, [line], is_damaged=False)
        self._last_stop.distrust()
        self._report(f"{line}: accepted, this is a new cluster")

    def accept_older_copy(self, line: str, strays: Iterable[str]) -> None:
        """Go on as after a power loss: producer ids that are not in the document were given out."""
        self._last_stop.distrust()
        names = sorted(strays)
        kept = f", and the files of {counted(len(names), 'log')} that it does not have are kept: {', '.join(names)}"
        self._report(f"{line}: accepted{kept if names else ''}")

    def accept(self, survey: Survey) -> None:
        """Go on as after a power loss: readers and producers learn that the logs may be shorter than they know."""
        self._note_proven_ends({part.name: survey.ends[part.name] for part in survey.missing})
        self._last_stop.distrust()
        for part in survey.missing:
            kept = "".join([skip_gap(part.name, gap) for gap in part.gaps])
            end_offset = survey.ends[part.name]
            unused = f"offsets below {end_offset} are not used again" if end_offset else "its offsets are used again"
            self._report(f"{part}: accepted{kept}, {unused}")

    def accept_found(self, name: str, end_offset: int) -> None:
        """The same for a loss that only the opening of a log finds. Called before the log is changed."""
        self._note_proven_ends({name: end_offset})
        self._last_stop.distrust()

    def take_synced_end(self, name: str) -> int:
        """The recovery point of a log that is being opened."""
        return self._synced_ends.pop(name, self._recovery_points.get(name))

    def take_proven_end(self, name: str) -> int:
        return self._proven_ends.pop(name, 0)

    def _note_proven_ends(self, ends: Mapping[str, int]) -> None:
        """Make these ends recovery points, durably. Raises OSError.

        Only other records prove them, and these are about to be changed. If the process dies before it has opened
        these logs, the next start must not use their lost offsets again.
        """
        directories = [path for name in ends if os.path.isdir(path := f"{self._path}/{name}")]
        # A recovery point says that everything below it is on disk.
        self._disk.sync_paths([entry.path for path in directories for entry in os.scandir(path)], directories)
        for name, end_offset in ends.items():
            self._synced_ends.setdefault(name, self._recovery_points.get(name))
            self._recovery_points.set(name, end_offset)
        self._recovery_points.store(dict)
