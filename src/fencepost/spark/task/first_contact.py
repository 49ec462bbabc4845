"""Gives up soon in a worker that has never reached a broker.

The driver has reached them a moment ago. So a firewall is probably in the way, or an address that only the driver can
resolve, and the user should not wait for several delivery timeouts to learn it. A worker that has reached a broker once
waits for brokers as long as its leases allow.
"""

from __future__ import annotations

import socket
import time

from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError, NoToken, Unreachable

# Longer than a cluster takes to give the partitions of a dead broker to another (broker.session.timeout.ms is 9 s).
FIRST_CONTACT_S = 15.0


class NeverReached(Unreachable):
    patience_s = 0.0


def check_first_contact(client: KafkaClient, problem: ClientError, began: float) -> None:
    """problem: of the last attempt; began: the time of the first, by the monotonic clock. Raises NeverReached."""
    is_out_of_reach = isinstance(problem, Unreachable) and not isinstance(problem, NoToken)
    took_s = time.monotonic() - began
    if is_out_of_reach and not client.has_reached_a_broker and took_s >= FIRST_CONTACT_S:
        what, _, hint = str(problem).partition("\n\n")
        ours = (
            "hint: let executors connect to the brokers; `fencepost spark check` tries it. A firewall or network "
            "policy is in the way, or executors do not know the names in bootstrap.servers or advertised.listeners"
        )
        said = f"a task on {socket.gethostname()} has reached no broker in {took_s:.0f} s: {what}"
        raise NeverReached("\n\n".join(part for part in (said, hint, ours) if part)) from problem
