"""Shared by all tests that kill brokers: settings that differ from life to life, and kill -9 while a broker starts."""

from __future__ import annotations

import os
import signal
import threading
import time

from fencepost.testing import Broker, BrokerFailed

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
