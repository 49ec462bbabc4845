"""The one type for a partition's address: the name of its topic and its index."""

from __future__ import annotations

TopicPartition = tuple[str, int]
