"""Asks a cluster and returns its answers as a snapshot. Besides it, only `orders.py` and `exporter/` do I/O."""
