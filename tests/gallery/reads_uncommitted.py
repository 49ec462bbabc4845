"""Wrong: the consumer reads uncommitted, so outputs are made of inputs whose transaction is aborted."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer

from tests.gallery.loop import CONSUMER, PRODUCER, batches, offsets_after, pay

consumer = Consumer({**CONSUMER, "isolation.level": "read_uncommitted"})
producer = Producer({**PRODUCER, "transactional.id": "tills-1"})
producer.init_transactions()
for messages in batches(consumer):
    producer.begin_transaction()
    pay(producer, messages)
    producer.send_offsets_to_transaction(offsets_after(messages), consumer.consumer_group_metadata())
    producer.commit_transaction()
