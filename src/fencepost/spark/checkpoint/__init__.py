"""A query's checkpoint: the files that Spark wrote, what they say, and the query they belong to."""

from __future__ import annotations
