"""The refunds pipeline: settlements in, refunds and audit rows out, exactly once, while driver and broker are killed.

`job` is the Spark program, and all that a user would write; `driver` runs it as a process that can be killed.
`settlements` makes the input, `readers` looks at the topics with confluent-kafka, `verdict` judges what was found, and
`story` puts it together.
"""

from __future__ import annotations
