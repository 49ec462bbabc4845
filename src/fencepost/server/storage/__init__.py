"""Logs on disk, in Kafka's layout. `DataFolder` is the storage of a broker.

the folder      folder.py; identity.py its lock and its cluster; last_stop.py how the last process ended;
                offset_files.py one offset per log; begun_logs.py which logs have files; deleting.py;
                group_sync.py for commits; checkpointing.py; formats.py which versions of files are known;
                missing.py what is not there any more, losses.py refuses or accepts that; checking.py
a log           file_log.py appends and reads; log_files.py its directory; active_segment.py when it rolls;
                aborted_index.py; places.py addresses for the next reads; snapshots.py; recovery.py opens it;
                rewriting.py replaces segments, swaps.py when; skipped_offsets.py skips lost offsets; cuts.py keeps what
                recovery cuts off, salvage.py reads that; searching.py finds whole batches, range_crc.py checksums
a segment       segment.py; segment_indexes.py and index_file.py its indexes; heads.py the batch headers in it
the disk        open_files.py descriptors; syncing.py fsync; deferring.py the other thread; checkpoints.py small files
"""

from __future__ import annotations

from fencepost.server.storage.deferring import Defer
from fencepost.server.storage.file_log import FileLog
from fencepost.server.storage.folder import DataFolder
from fencepost.server.storage.identity import DataFolderUnusable

__all__ = ["DataFolder", "DataFolderUnusable", "Defer", "FileLog"]
