"""Checks ports, permissions and limits before the first micro-batch: `fencepost spark check`.

report.py      the result
limits.py      judges the settings and versions of a cluster for a sink. Pure
cluster.py     asks the Kafka cluster, from the driver
executors.py   asks the executors: can they reach the brokers and the driver? probe.py runs on them
run.py         runs all checks
"""

from __future__ import annotations
