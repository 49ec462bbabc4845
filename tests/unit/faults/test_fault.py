"""Faults from one line, as `fencepost tap --fault` takes them."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.faults.fault import BadFault, parse_line
from fencepost.protocol import errors


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("delay EndTxn 2s", {"action": "delay", "at": "reply", "api_key": 26, "delay_ms": 2000, "times_left": 1}),
        ("delay END_TXN 1.5s request", {"at": "request", "delay_ms": 1500}),
        ("drop EndTxn reply", {"action": "drop", "at": "reply"}),
        ("drop EndTxn at=request", {"at": "request"}),
        ("duplicate Produce", {"action": "duplicate", "at": "request", "api_key": 0}),
        ("disconnect *", {"action": "disconnect", "at": "reply", "api_key": None}),
        ("disconnect Fetch times=always skip=3 client_id=svc-*", {"times_left": None, "skip": 3, "client_id": "svc-*"}),
        (
            "error AddPartitionsToTxn COORDINATOR_NOT_AVAILABLE times=3",
            {"action": "error", "at": "request", "error_code": errors.COORDINATOR_NOT_AVAILABLE, "times_left": 3},
        ),
        ("error EndTxn 51 reply", {"error_code": 51, "at": "reply"}),
    ],
)
def test_a_line_says_what_happens_to_which_requests(line: str, expected: dict[str, Any]) -> None:
    fault = parse_line(line)
    assert {name: getattr(fault, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("delay", "'delay' is no fault"),
        ("delay EndTxn", "does not say how long\n\nhint: add a duration, for example 'delay EndTxn 2s'"),
        ("delay EndTxn 2h", "'2h' has no meaning"),
        ("dely EndTxn 2s", r"'dely' is no action .*\n\nhint: did you mean delay\?"),
        ("drop EndTx", r"'EndTx' is no API that Fencepost knows\n\nhint: did you mean EndTxn\?"),
        ("drop EndTransaction", r"'EndTransaction' is no API that Fencepost knows\n\nhint: did you mean EndTxn\?"),
        ("drop end_transaction", r"did you mean EndTxn\?"),
        ("drop EndTxnRequest", r"did you mean EndTxn\?"),
        ("drop commit_transaction", r"did you mean EndTxn\?"),
        ("drop abortTransaction", r"did you mean EndTxn\?"),
        ("drop init_transactions", r"did you mean InitProducerId\?"),
        ("drop send_offsets_to_transaction", r"did you mean TxnOffsetCommit\?"),
        ("drop InitProducer", r"did you mean InitProducerId\?"),
        ("drop AddPartitions", r"did you mean AddPartitionsToTxn\?"),
        ("drop DescribeTxns", r"did you mean DescribeTransactions\?"),
        ("drop xyzzy", r"known are Produce, Fetch, .* and \d+ more"),
        ("error EndTxn", "'error EndTxn' does not say which error\n\nhint: add its name, for example 'error"),
        ("error * PRODUCER_FENCED", "an error needs the name of an API, since each API has its"),
        ("error EndTxn FENCED", r"'FENCED' is no error that Fencepost knows\n\nhint: did you mean PRODUCER_FENCED\?"),
        ("error EndTxn producer_fenced", r"did you mean PRODUCER_FENCED\?"),
        ("error EndTxn ProducerFencedException", r"did you mean PRODUCER_FENCED\?"),
        ("error EndTxn NotCoordinator", r"did you mean NOT_COORDINATOR\?"),
        ("error EndTxn NONE", "NONE is no error"),
        ("drop EndTxn times=0", "times=0 never happens"),
        ("drop EndTxn times=x", "'times=x' has no meaning"),
        ("duplicate Produce reply", "duplicate at the reply is not possible\n\nhint: .*; leave `reply` out"),
        ("drop EndTxn sometimes", "'sometimes' has no meaning"),
    ],
)
def test_a_line_without_a_meaning_is_refused_with_a_hint(line: str, said: str) -> None:
    with pytest.raises(BadFault, match=said) as refused:
        parse_line(line)
    assert "hint: " in str(refused.value)
