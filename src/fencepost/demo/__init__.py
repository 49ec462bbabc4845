"""Demos of transactions with a real client. Each demo checks its own results and returns a `Report`.

brew         writes orders in transactions and counts the records that each isolation level sees
order_crash  kills the order service in the middle of an order
recovery     kills the broker in the middle of a commit
zombie       runs two processes with the same transactional id
isolation    leaves a transaction open and measures how long readers wait
read         reads the user's topics with one isolation level
refunds      runs a Spark pipeline and kills its driver and its broker
"""

from __future__ import annotations
