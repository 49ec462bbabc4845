"""Rows as Kafka record batches: columns, partitions, the layout of the records."""

from __future__ import annotations
