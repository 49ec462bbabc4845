"""A real broker for tests, in one line: see `Broker`. `Tap` is a proxy in front of any Kafka, with the same faults.

The pytest fixtures are in `plugin`, faults in `faults`.
"""

from __future__ import annotations

from fencepost.testing.broker import Broker
from fencepost.testing.faults import Fault, Faults, OrderRefused
from fencepost.testing.process import BrokerFailed
from fencepost.testing.tap import Tap

__all__ = ["Broker", "BrokerFailed", "Fault", "Faults", "OrderRefused", "Tap"]
