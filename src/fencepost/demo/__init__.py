"""Stories about transactions, told with a real client, that check themselves.

`brew` writes orders in transactions and counts what each kind of reader sees; `order_crash` kills the writer
in the middle of an order; `recovery` kills the broker in the middle of a commit; `refunds` is a pipeline on Spark
whose driver and broker are killed. Each returns a `Report`.
"""

from __future__ import annotations
