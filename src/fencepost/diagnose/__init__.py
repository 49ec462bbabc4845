"""Explains the transactions of any Kafka cluster: why one is not finished, which readers wait for it, what to do.

`collect_*` asks a cluster and returns a snapshot. `diagnose_*` turns a snapshot into a document, which the commands
print as text or as JSON. It does no I/O, so that a test can pass it a snapshot made by hand. `order_*` changes
something.
"""
