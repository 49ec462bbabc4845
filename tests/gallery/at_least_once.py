"""Wrong: there are no transactions. A kill repeats what was written since the last commit of offsets."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer

from tests.gallery.loop import BOOTSTRAP, CONSUMER, batches, pay

consumer = Consumer({**CONSUMER, "enable.auto.commit": True})
producer = Producer(BOOTSTRAP)
for messages in batches(consumer):
    pay(producer, messages)
