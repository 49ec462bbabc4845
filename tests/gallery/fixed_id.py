"""Right: the program assigns itself its partitions, and its transactional id, always the same, fences zombies."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer

from tests.gallery.loop import CONSUMER, PRODUCER, assigned_batches, offsets_after, pay

consumer = Consumer(CONSUMER)
producer = Producer({**PRODUCER, "transactional.id": "tills-1"})
producer.init_transactions()
for messages in assigned_batches(consumer):
    producer.begin_transaction()
    pay(producer, messages)
    producer.send_offsets_to_transaction(offsets_after(messages), consumer.consumer_group_metadata())
    producer.commit_transaction()
