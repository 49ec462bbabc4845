"""Starts a cluster on the data folder that the last process left."""

from __future__ import annotations

from fencepost.broker.cluster import Cluster
from fencepost.server.storage import DataFolder, DataFolderUnusable


def recover(storage: DataFolder, cluster: Cluster, now_ms: int) -> None:
    if storage.load_metadata() is None and storage.strays():
        raise DataFolderUnusable(
            f"{storage.path} has logs ({storage.strays()[0]} ...), but not the document that says what they are",
            "restore the file fencepost.metadata, or choose a new folder",
        )
    cluster.start(now_ms)
    storage.note_cluster(cluster.cluster_id, cluster.brokers[0].node_id)
    # The logs that were not opened belong to topics that were being deleted when the last process died.
    storage.delete_strays()
