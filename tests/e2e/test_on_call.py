"""The guide for the engineer on call shows what the commands print, on Apache Kafka and on a Fencepost broker."""

from __future__ import annotations

import pytest

from tests.on_call import STORIES, in_guide, said, tell
from tests.txn_tools import BOTH


@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize("name", STORIES)
def test_the_guide_tells_what_the_commands_print(name: str, engine: str) -> None:
    shown = in_guide(name)
    assert tuple(line[2:] for line in shown.splitlines() if line.startswith("$ ")) == STORIES[name].commands
    assert said(tell(name, engine)) == said(shown), "to renew: python -m tests.on_call"
