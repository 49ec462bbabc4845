"""A real broker for tests, in one line: see `Broker`. The pytest fixtures are in `plugin`."""

from __future__ import annotations

from fencepost.testing.broker import Broker, BrokerFailed

__all__ = ["Broker", "BrokerFailed"]
