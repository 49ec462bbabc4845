"""A small Kafka client for what no other client offers: a transaction that several processes write to.

`KafkaClient` finds brokers, leaders and coordinators on any Kafka; `Transaction` owns a transactional id. Both
block; `session.py` is the part without I/O.
"""
