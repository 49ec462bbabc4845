"""A client that has to be built is built while the tests of the others run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.e2e.clients.players import why_no_franz_go


@pytest.fixture(scope="session", autouse=True)
def _franz_go_is_being_built(request: pytest.FixtureRequest) -> Iterator[None]:
    def build() -> None:
        # The test that needs it says what is wrong.
        with suppress(AssertionError):
            why_no_franz_go()

    building = threading.Thread(target=build, daemon=True)
    if any("franz-go" in item.name for item in request.session.items):
        building.start()
    yield
    if building.ident is not None:
        building.join()
