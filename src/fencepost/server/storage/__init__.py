"""Logs on disk, in Kafka's layout. `DataFolder` is the storage of a broker.

the folder      folder.py; identity.py its lock, its cluster and its formats; last_stop.py how the last process ended;
                offset_files.py files with a line per log; deleting.py; group_sync.py for commits and recovery points;
                missing.py what is not there any more, losses.py refuses or accepts that
a log           file_log.py appends and reads; log_files.py its directory; active_segment.py when it rolls;
                aborted_index.py; snapshots.py; recovery.py opens it; rewriting.py replaces segments; cuts.py keeps what
                recovery cuts off, salvage.py reads that; searching.py finds whole batches
a segment       segment.py; segment_indexes.py its indexes; heads.py the batch headers in it
the disk        open_files.py descriptors; syncing.py fsync, in another thread; checkpoints.py small files
"""

from __future__ import annotations

from fencepost.server.storage.file_log import FileLog
from fencepost.server.storage.folder import DataFolder
from fencepost.server.storage.identity import DataFolderUnusable
from fencepost.server.storage.syncing import Defer

__all__ = ["DataFolder", "DataFolderUnusable", "Defer", "FileLog"]
