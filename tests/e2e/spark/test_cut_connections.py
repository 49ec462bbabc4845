"""Connections that end while several Produce requests of a task in Spark's JVM are on their way on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.protocol.messages import ProduceRequest
from tests.e2e.conftest import Target
from tests.e2e.spark.streams import MakeSink, create_topic, is_soon_free, values, written
from tests.wire.proxy import Proxy

pytestmark = pytest.mark.java

PARTITIONS, ROWS = 6, 24_000


@pytest.mark.parametrize(
    ("executed", "answered"),
    [pytest.param(1, 0, marks=pytest.mark.engines), (1, 1), (2, 0), pytest.param(2, 1, marks=pytest.mark.engines)],
)
def test_each_of_several_requests_on_a_connection_that_ends_takes_effect_once(
    spark: Any, target: Target, unique: Callable[[str], str], sinks: MakeSink, executed: int, answered: int
) -> None:
    topic = create_topic(target.servers, unique("cut"), PARTITIONS)
    # One task, whose record batches are large enough to be requests of their own.
    rows = spark.range(0, ROWS, 1, 1).selectExpr("lpad(cast(id AS string), 1024, '0') AS value")
    with Proxy(target.servers) as proxy:
        sink = sinks(proxy.bootstrap_servers, unique("cut"), topic=topic)
        proxy.cut(ProduceRequest, executed=executed, answered=answered)
        assert sink.write(rows) == ROWS
        assert proxy.unsprung == 0, "the connection was cut with several requests on it"
    assert sink.recent_progress[-1].attempts == 1, "this does not break a transaction"
    assert [int(value) for value in values(target.servers, topic)] == list(range(ROWS))
    assert written(target.servers, topic) == ROWS + PARTITIONS, "the rows, and a marker in each partition"
    assert is_soon_free(target.servers, topic)
