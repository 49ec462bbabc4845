"""The plan of a write: everything that its tasks need to know.

It travels with the Spark job, without the settings: they have secrets, and a task gets them from the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fencepost.client.transaction import ProducerIdentity
from fencepost.spark.lease.client import LeaseAddress
from fencepost.spark.task.topics import PinnedTopic


class WritePlan(NamedTuple):
    settings: Mapping[str, object]  # Empty in the plan that travels with the job.
    identity: ProducerIdentity
    # TV2: from version 12 on the first write adds its partition; 13 names topics by id.
    # TV1: up to version 11 the driver adds partitions.
    produce_version: int
    address: LeaseAddress
    write_number: int
    topic: str | None
    topics: Mapping[str, PinnedTopic]  # The topics that the driver has pinned.
    compression: str
    max_record_batch_bytes: int
    # The id of the driver's token source, which tasks ask for tokens. Empty: no token is needed.
    login_id: str = ""

    def __repr__(self) -> str:
        return f"WritePlan(write_number={self.write_number}, topic={self.topic!r}, identity={self.identity})"
