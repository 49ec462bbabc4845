"""A small Kafka client for two purposes that other clients do not serve.

Several processes can write into one transaction (`transaction.py`), and operators can ask about the transactions of a
cluster (`admin/`). `KafkaClient` finds the brokers, leaders and coordinators of any Kafka cluster. All calls block;
`session.py` is the part without I/O.
"""
