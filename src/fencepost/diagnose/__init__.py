"""Why a transaction is not finished, who keeps readers waiting, and what to do: on any Kafka cluster.

`collect_*` asks a cluster and returns a snapshot. `diagnose_*` takes a snapshot and returns a document, which the
commands print as text or as JSON; it asks nobody, so a test hands it a snapshot made by hand.
"""
