"""The sink on a network that loses requests and replies: a request that is sent again takes effect once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.protocol import errors
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from tests.e2e.conftest import Target
from tests.e2e.spark.streams import (
    Lines,
    MakeSink,
    create_topic,
    is_soon_free,
    outcomes,
    run,
    stream,
    values,
    written,
)
from tests.wire.proxy import Proxy

pytestmark = [pytest.mark.java, pytest.mark.usefixtures("plane")]

AT_THE_START = [FindCoordinatorRequest, InitProducerIdRequest, OffsetFetchRequest]
IN_A_BATCH = {
    2: [ProduceRequest, TxnOffsetCommitRequest, EndTxnRequest],
    1: [
        InitProducerIdRequest,
        AddPartitionsToTxnRequest,
        ProduceRequest,
        AddOffsetsToTxnRequest,
        TxnOffsetCommitRequest,
        EndTxnRequest,
    ],
}


def test_a_request_or_reply_that_is_lost_costs_no_row_and_doubles_none(
    spark: Any, target: Target, unique: Callable[[str], str], sinks: MakeSink, tmp_path: Path
) -> None:
    topic = create_topic(target.servers, unique("lost"))
    lines = Lines(tmp_path / "lines")
    with Proxy(target.servers) as proxy:
        sink = sinks(proxy.bootstrap_servers, unique("lost"), topic=topic)

        def lose(kind: Any) -> None:
            # The broker carries out the second request, and gets the same request a third time.
            proxy.lose_request(kind)
            proxy.lose_reply(kind)

        def batch(frame: Any, batch_id: int) -> None:
            lose(IN_A_BATCH[target.version][batch_id])
            sink(frame, batch_id)
            assert proxy.unsprung == 0, "all of this has happened"

        for _ in IN_A_BATCH[target.version]:
            lines.add_batch()
        for kind in AT_THE_START:
            lose(kind)
        run(stream(spark, lines), batch, tmp_path / "checkpoint")

    batches = len(IN_A_BATCH[target.version])
    assert outcomes(sink) == [(n, "committed", 40) for n in range(batches)]
    assert {p.attempts for p in sink.recent_progress} == {1}, "nothing of this breaks a transaction"
    assert values(target.servers, topic) == sorted(lines.all)
    assert written(target.servers, topic) == batches * (40 + 3), "the rows, and a marker in each partition"
    assert is_soon_free(target.servers, topic)


def test_a_commit_of_unclear_outcome_is_looked_up_and_neither_repeated_nor_lost(
    spark: Any, target: Target, unique: Callable[[str], str], sinks: MakeSink, tmp_path: Path
) -> None:
    topic = create_topic(target.servers, unique("unclear"))
    lines = Lines(tmp_path / "lines")
    with Proxy(target.servers) as proxy:
        sink = sinks(proxy.bootstrap_servers, unique("unclear"), topic=topic)

        def refuse(reply: Any) -> None:
            reply.error_code = errors.INVALID_TXN_STATE

        def refuse_offsets(reply: Any) -> None:
            for result in (p for t in reply.topics for p in t.partitions):
                result.error_code = errors.INVALID_TXN_STATE

        def batch(frame: Any, batch_id: int) -> None:
            if batch_id == 0:
                proxy.change_reply(EndTxnRequest, refuse)
            elif batch_id == 1:
                proxy.answer(EndTxnRequest, EndTxnResponse(error_code=errors.UNKNOWN_SERVER_ERROR))
            else:
                proxy.change_reply(TxnOffsetCommitRequest, refuse_offsets)
            sink(frame, batch_id)
            assert proxy.unsprung == 0

        for _ in range(3):
            lines.add_batch()
        run(stream(spark, lines), batch, tmp_path / "checkpoint")

    assert outcomes(sink) == [(n, "committed", 40) for n in range(3)]
    assert [p.attempts for p in sink.recent_progress] == [1, 2, 2], "the first was committed, the others were not"
    assert values(target.servers, topic) == sorted(lines.all)
    assert is_soon_free(target.servers, topic)
