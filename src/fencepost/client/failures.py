"""The errors of the client.

ClientError                    all errors of the client
+-- BadClientSetting           a setting is wrong; nothing was sent
+-- Unreachable                no connection to a broker
|   +-- Refused                nothing listens at the address
|   +-- NoToken                the token for the login cannot be had now
+-- AuthenticationFailed       a broker or a token endpoint refused the credentials
+-- BrokerError                a broker answered with an error code
|   +-- Fenced                 a newer producer took over this transactional id
|   +-- TransactionLost        this transaction can only be aborted
+-- OutcomeUnknown             the request may have taken effect: find out before a retry
+-- DeadlinePassed             retriable errors until the deadline; the message has the last one
"""

from __future__ import annotations

import math

from fencepost.protocol import errors


class ClientError(Exception):
    """Any error of the client."""


class BadClientSetting(ClientError):
    pass


class Unreachable(ClientError):
    patience_s = math.inf  # How long another attempt makes sense.


class Refused(Unreachable):
    pass


class NoToken(Unreachable):
    pass


class AuthenticationFailed(ClientError):
    pass


class BrokerError(ClientError):
    """A definite refusal: the request had no effect."""

    def __init__(self, code: int, about: str, detail: str | None = None) -> None:
        super().__init__(f"{about}: {errors.name_of(code)} ({code})" + (f": {detail}" if detail else ""))
        self.code = code
        self.about = about

    @property
    def is_retriable(self) -> bool:
        return self.code in errors.RETRIABLE


class Fenced(BrokerError):
    pass


class TransactionLost(BrokerError):
    pass


class OutcomeUnknown(ClientError):
    pass


class DeadlinePassed(ClientError):
    pass
