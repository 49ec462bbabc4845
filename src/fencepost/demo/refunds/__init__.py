"""The refunds pipeline: a Spark job that writes a refund and an audit row for each settlement, exactly once.

The demo kills the driver and the broker while the job runs.

job          the Spark job, as a user would write it
driver       runs the job in a process that the demo can kill
settlements  generates the input
watcher      reads the outputs throughout the demo, with confluent-kafka
verdict      checks the records that the readers found
pipeline     one pipeline on one cluster: its topics, its runs, its results
story        the demo, from the first settlement to the verdict
"""

from __future__ import annotations
