"""With Spark Connect: whether a checkpoint is that of the query that calls the sink."""

from __future__ import annotations

import re

import pytest

from fencepost.spark.checkpoint.offsets import BadCheckpoint
from fencepost.spark.checkpoint.query import check_position


class Files:
    """A checkpoint in memory."""

    def __init__(self, *paths: str) -> None:
        self._paths = set(paths)

    def read(self, path: str) -> str | None:
        return "" if path in self._paths else None

    def exists(self, path: str) -> bool:
        return path in self._paths


def test_a_query_in_the_middle_of_the_micro_batch_is_the_one_that_calls() -> None:
    check_position(Files("offsets/0"), 0)
    check_position(Files("offsets/6", "commits/6", "offsets/7"), 7)


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (["offsets/6"], "it has no offsets/7"),
        (["offsets/7", "commits/7", "offsets/8"], "it has offsets/8"),
        (["offsets/7", "commits/7"], "it has commits/7"),
    ],
)
def test_a_query_at_another_micro_batch_is_another_query(paths: list[str], said: str) -> None:
    with pytest.raises(BadCheckpoint, match=re.escape(said) + r".* the checkpoint of another query\n\nhint: "):
        check_position(Files(*paths), 7)
