"""Kafka's bytes as values: messages of every version, record batches, records and error codes. Pure."""
