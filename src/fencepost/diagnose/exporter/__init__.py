"""Metrics for Prometheus about the transactions of any Kafka cluster: `fencepost exporter`.

`families.py` turns the cluster's answers into metrics and is pure. `collecting.py` asks the cluster and serves the
metrics.
"""
