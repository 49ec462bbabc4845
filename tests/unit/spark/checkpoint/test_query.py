"""Whether the query that calls the sink can be known, and with Spark Connect, whether a checkpoint is its own."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.spark.checkpoint.offsets import BadCheckpoint
from fencepost.spark.checkpoint.query import check_position, check_threads, running_query
from fencepost.spark.failures import SinkError


class Files:
    """A checkpoint in memory."""

    def __init__(self, *paths: str) -> None:
        self._paths = set(paths)

    def read(self, path: str) -> str | None:
        return "" if path in self._paths else None

    def exists(self, path: str) -> bool:
        return path in self._paths

    def write(self, path: str, text: str) -> None:
        raise NotImplementedError


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


def test_a_pyspark_whose_threads_are_not_those_of_the_jvm_is_refused_with_its_setting() -> None:
    clientserver = pytest.importorskip("py4j.clientserver", reason="no PySpark")
    pinned, free = (object.__new__(kind) for kind in (clientserver.ClientServer, clientserver.JavaGateway))
    check_threads(SimpleNamespace(sparkContext=SimpleNamespace(_gateway=pinned)))
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=free))
    for ask in (check_threads, running_query):
        with pytest.raises(SinkError, match="PYSPARK_PIN_THREAD is false"):
            ask(session)
