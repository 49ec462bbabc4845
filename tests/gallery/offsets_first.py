"""Wrong: the offsets are committed before the transaction. A kill between the two skips inputs for ever."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer

from tests.gallery.loop import CONSUMER, PRODUCER, batches, offsets_after, pay

consumer = Consumer(CONSUMER)
producer = Producer({**PRODUCER, "transactional.id": "tills-1"})
producer.init_transactions()
for messages in batches(consumer):
    consumer.commit(offsets=offsets_after(messages), asynchronous=False)
    producer.begin_transaction()
    pay(producer, messages)
    producer.commit_transaction()
