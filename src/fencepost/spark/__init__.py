"""An exactly-once sink for Spark Structured Streaming: each micro-batch is one Kafka transaction over all executors.

The driver owns the transaction; tasks encode their rows and produce under its identity. Nothing here knows which
Kafka it talks to.
"""
