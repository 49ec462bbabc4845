"""The tokens with which a task in a Python worker logs in to the brokers: its driver makes them.

The driver sends tasks `oauth_cb=fencepost.spark.task.login:ask_driver` in place of what makes a token, so no task has a
secret that outlives its token.
"""

from __future__ import annotations

from fencepost.client.failures import AuthenticationFailed, NoToken
from fencepost.spark.lease.client import DriverUnreachable, LeaseAddress, RefusedByDriver, ask_for_token

ASK_DRIVER = f"{__name__}:ask_driver"
# By the id of the driver's token source: a worker outlives transactions, so it asks where the last of them was.
_drivers: dict[str, LeaseAddress] = {}


def remember_driver(login_id: str, address: LeaseAddress) -> None:
    """The driver has let a task in: it makes tokens as long as this transaction lasts."""
    _drivers[login_id] = address


def ask_driver(login_id: str) -> tuple[str, float, str, dict[str, str]]:
    """As confluent-kafka's oauth_cb; the login id is its sasl.oauthbearer.config."""
    try:
        token = ask_for_token(_drivers[login_id])
    except DriverUnreachable as e:
        raise NoToken(str(e)) from None
    except RefusedByDriver as e:
        raise (AuthenticationFailed if e.is_fatal else NoToken)(str(e)) from None
    return token.value, token.expires_at_s, "", dict(token.extensions)
