"""Metrics for Prometheus about the transactions of any Kafka cluster: `fencepost exporter`.

`reading.py` has the cluster's answers, `families.py` turns them into metrics; both are pure. `collecting.py` asks the
cluster at an interval, in a thread of its own, and `serving.py` answers Prometheus with the last result, so that a slow
cluster never delays a scrape.
"""
