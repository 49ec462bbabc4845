"""Faults of a run that can make an EndTxn late: the client has given it up by the time it arrives. Pure.

Only a request that was delayed for longer than its client waits can be late. A request that is dropped, or that a tap
answers with an error, never arrives. One that is doubled arrives twice on its connection, both before the client's next
request. A reply that is delayed belongs to a request that has arrived.
"""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.faults.fault import DELAY, REQUEST, BadFault
from fencepost.faults.parsing import parse_line
from fencepost.verify.history import CLIENT_PATIENCE_MS, Fault

END_TXN = 26  # Its API key.
PATIENCE_NS = CLIENT_PATIENCE_MS * 1_000_000


def longest_delay_ns(faults: Iterable[Fault]) -> int:
    """For how long an EndTxn was held back at most; 0 if no client has given one up because of that."""
    longest_ms = max((_delay_ms(fault.what) for fault in faults), default=0)
    return longest_ms * 1_000_000 if longest_ms >= CLIENT_PATIENCE_MS else 0


def _delay_ms(what: str) -> int:
    """Of a fault in the words of `fencepost tap`, such as `delay EndTxn 4s request (2 times)`."""
    words, _, _ = what.partition(" (")
    try:
        fault = parse_line(words)
    except BadFault:
        return 0  # Another kind of fault, such as `paused writer-0`.
    is_of_end_txn = fault.api_key in (None, END_TXN)
    return fault.delay_ms if fault.action == DELAY and fault.at == REQUEST and is_of_end_txn else 0
