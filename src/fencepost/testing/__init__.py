"""A real broker for tests, in one line: see `Broker`. The pytest fixtures are in `plugin`, faults in `faults`."""

from __future__ import annotations

from fencepost.testing.broker import Broker
from fencepost.testing.faults import Fault, Faults, OrderRefused
from fencepost.testing.process import BrokerFailed

__all__ = ["Broker", "BrokerFailed", "Fault", "Faults", "OrderRefused"]
