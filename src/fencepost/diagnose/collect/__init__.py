"""Asks a cluster and returns its answers as a snapshot. Only this package and `orders.py` do I/O in `diagnose`."""
