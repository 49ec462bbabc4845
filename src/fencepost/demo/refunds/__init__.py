"""The refunds pipeline: settlements in, refunds and audit rows out, exactly once, while driver and broker are killed.

job          the Spark program, as a user would write it
driver       runs the job as a process that can be killed
settlements  makes the input
watcher      reads the outputs all along, with confluent-kafka
verdict      judges what the readers found
pipeline     one pipeline on one cluster: its topics, its starts, its results
story        the demo, from the first settlement to the verdict
"""

from __future__ import annotations
