"""Metrics for Prometheus about the transactions of any Kafka cluster: `fencepost exporter`.

`families.py` turns the cluster's answers into metrics and is pure. `collecting.py` asks the cluster at an interval, in
a thread of its own, and `serving.py` answers Prometheus with the last result, so that a slow cluster never delays a
scrape.
"""
