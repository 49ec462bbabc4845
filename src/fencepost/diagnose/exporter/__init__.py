"""Metrics for Prometheus about the transactions of any Kafka cluster: `fencepost exporter`.

`reading.py` has what was asked of the cluster, `families.py` makes metrics of it; both are pure. `collecting.py` asks
at an interval in a thread of its own, and `serving.py` answers Prometheus with the last result, so that a cluster that
is slow, or does not answer, never delays a scrape.
"""
