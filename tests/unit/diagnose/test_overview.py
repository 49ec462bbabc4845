"""How many transactions end, from the records of `__transaction_state`."""

from __future__ import annotations

from fencepost.diagnose.overview import EndCount, Rates, count_ends
from fencepost.machines.txn.records import encode_key, encode_value
from fencepost.machines.txn.states import Txn, TxnState
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.transaction_version import TV2


def batch_of(*states: TxnState | None) -> bytes:
    """A record for each state; None is a tombstone."""
    txns = [Txn("orders-sink", 7, 4, 60_000, state) if state is not None else None for state in states]
    key = encode_key("orders-sink")
    return encode_batch([(key, encode_value(txn, TV2) if txn is not None else None) for txn in txns], 0)


def test_only_records_of_an_end_are_counted() -> None:
    batch = batch_of(
        TxnState.EMPTY,
        TxnState.ONGOING,
        TxnState.PREPARE_COMMIT,
        TxnState.COMPLETE_COMMIT,
        TxnState.PREPARE_ABORT,
        TxnState.COMPLETE_ABORT,
        TxnState.COMPLETE_COMMIT,
        None,
    )
    assert count_ends(batch, 0, 8) == (2, 1)
    assert count_ends(batch, 4, 8) == (1, 1), "from an offset within the batch"
    assert count_ends(batch, 0, 4) == (1, 0)


def test_the_first_look_has_no_rate() -> None:
    rates = Rates((EndCount(1000, None), EndCount(1500, 0.5, 3, 0)))
    assert rates.document() == {
        "times_ms": [1000, 1500], "commits": [None, 6.0], "aborts": [None, 0.0], "has_estimates": False
    }  # fmt: skip


def test_a_rate_from_a_part_of_the_records_is_called_an_estimate() -> None:
    rates = Rates((EndCount(1000, None), EndCount(2000, 1.0, 9, 0, is_estimate=True), EndCount(3000, 1.0, 2, 0)))
    assert rates.document()["has_estimates"] is True
