"""One partition: appends and fetches, producers, the last stable offset, recovery, deletion and compaction."""
