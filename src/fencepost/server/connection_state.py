"""The states of a connection, and the table of their moves."""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import Enum


class ConnectionState(Enum):
    """How the connection handles its client's requests now."""

    READY = "ready"  # Every request was answered; the next one is handled when its bytes arrive.
    HANDLING = "handling"  # The broker handles a request and has not answered it.
    ANSWERED = "answered"  # The broker answered before it returned: the answer leaves together with the next ones.
    AWAITING = "awaiting"  # The broker returned without an answer, which will come later.
    SCHEDULED = "scheduled"  # The event loop will call `_next_turn`, which handles the requests in the inbox.
    CLOSED = "closed"  # No request is handled any more, and no answer leaves.


READY, HANDLING, ANSWERED, AWAITING, SCHEDULED, CLOSED = ConnectionState
MOVES: Mapping[ConnectionState, Set[ConnectionState]] = {
    READY: {HANDLING, SCHEDULED, CLOSED},
    HANDLING: {ANSWERED, AWAITING, CLOSED},
    ANSWERED: {HANDLING, READY, CLOSED},
    AWAITING: {READY, CLOSED},
    SCHEDULED: {READY, CLOSED},
    CLOSED: set(),
}
