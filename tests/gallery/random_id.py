"""Wrong: as `fixed_id.py`, with another transactional id at each start. Nothing fences a zombie, which commits too."""

from __future__ import annotations

import uuid

from confluent_kafka import Consumer, Producer

from tests.gallery.loop import CONSUMER, PRODUCER, assigned_batches, offsets_after, pay

consumer = Consumer(CONSUMER)
producer = Producer({**PRODUCER, "transactional.id": f"tills-{uuid.uuid4()}"})
producer.init_transactions()
for messages in assigned_batches(consumer):
    producer.begin_transaction()
    pay(producer, messages)
    producer.send_offsets_to_transaction(offsets_after(messages), consumer.consumer_group_metadata())
    producer.commit_transaction()
