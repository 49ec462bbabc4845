"""Wrong: the offsets are not in the transaction. A kill between the transaction and their commit repeats inputs."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer

from tests.gallery.loop import CONSUMER, PRODUCER, batches, pay

consumer = Consumer({**CONSUMER, "enable.auto.commit": True})
producer = Producer({**PRODUCER, "transactional.id": "tills-1"})
producer.init_transactions()
for messages in batches(consumer):
    producer.begin_transaction()
    pay(producer, messages)
    producer.commit_transaction()
