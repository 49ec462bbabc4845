"""The pytest fixtures of Fencepost.

`fencepost_broker` is a broker in memory for one test; `fencepost_broker_factory` starts as many as a test
needs, on disk too. Each has its own port and process, so tests may run side by side (pytest-xdist).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from fencepost.testing.broker import Broker


@pytest.fixture
def fencepost_broker() -> Iterator[Broker]:
    """A real Kafka broker in memory: `fencepost_broker.bootstrap_servers`."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def fencepost_broker_factory() -> Iterator[Callable[..., Broker]]:
    """Starts a broker with the arguments of `fencepost.testing.Broker`; all are stopped after the test."""
    with ExitStack() as brokers:

        def start(**arguments: Any) -> Broker:
            return brokers.enter_context(Broker(**arguments))

        yield start
