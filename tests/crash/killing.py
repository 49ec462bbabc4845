"""Shared by all tests that kill brokers: topics and settings, and kill -9 for a broker that is still starting."""

from __future__ import annotations

import os
import signal
import threading
import time

from fencepost.testing import Broker, BrokerFailed

TOPICS = {"orders": 2, "payments": 2, "shipments": 1}
INPUT, OUTPUT = "orders", "invoices"
# Small segments, and a cleaner that is always at work, so that a run of a minute rolls and cleans many segments.
SETTINGS = {
    "log.segment.bytes": "65536",
    "transaction.state.log.segment.bytes": "16384",
    "offsets.topic.segment.bytes": "16384",
    "fencepost.state.clean.bytes": "4096",
    "log.cleaner.backoff.ms": "100",
}
# Each process gets one value of each.
CHOICES = {
    "fencepost.endtxn.reply": ["complete", "prepare"],
    "fencepost.flush.on.commit": ["false", "false", "true"],
    "fencepost.recovery.ongoing": ["keep", "keep", "keep", "abort"],
}


def kill_while_it_starts(broker: Broker, after_s: float) -> bool:
    """Start the broker and kill it `after_s` later, ready or not; return whether it was not."""

    def kill() -> None:
        while not broker.is_running:
            time.sleep(0.001)
        pid = broker.pid
        time.sleep(after_s)
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        broker.start()
    except BrokerFailed:
        return True
    else:
        return False
    finally:
        killer.join()
        broker.kill()
