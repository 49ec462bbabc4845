"""The last request for a transactional id, if the brokers remember requests."""

from __future__ import annotations

from fencepost.diagnose.snapshot import TxnSnapshot
from fencepost.diagnose.words import duration
from fencepost.protocol import errors


def last_request(snapshot: TxnSnapshot) -> list[str]:
    if not snapshot.rpcs:
        return []
    rpc = snapshot.rpcs[-1]
    client = f"client `{rpc.client_id}`" if rpc.client_id else "a client"
    came = f"The last request for it was {rpc.name}, {duration(snapshot.now_ms - rpc.at_ms)} ago from {client}"
    if rpc.duration_us < 0:
        result = "is not answered yet"
    elif rpc.error_code:
        result = f"was answered with {errors.name_of(rpc.error_code)}"
    else:
        result = "was answered without an error"
    return [f"{came} at {rpc.host}:{rpc.port}, and {result}."]
