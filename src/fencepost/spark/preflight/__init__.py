"""Does a pipeline find what it needs? Asked before the first micro-batch: `fencepost spark check`.

report.py      what was found
limits.py      what settings and versions of a cluster mean for a sink. Pure
cluster.py     asks the Kafka cluster, from the driver
executors.py   asks the executors: can they reach the brokers and the driver? probe.py is what runs there
run.py         all of it
"""

from __future__ import annotations
