"""The topics that belong to the broker's coordinators."""

from __future__ import annotations

TXN_TOPIC = "__transaction_state"
OFFSETS_TOPIC = "__consumer_offsets"
INTERNAL_TOPICS = frozenset({TXN_TOPIC, OFFSETS_TOPIC})
# The prefix of the settings of each internal topic.
SETTINGS_PREFIX = {TXN_TOPIC: "transaction.state.log", OFFSETS_TOPIC: "offsets.topic"}
