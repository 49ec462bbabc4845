"""What can go wrong between a client and a Kafka cluster.

ClientError                    everything below
+-- BadClientSetting           a setting that cannot be used; nothing was sent
+-- Unreachable                no broker could be connected to
+-- AuthenticationFailed       a broker said no to the credentials
+-- BrokerError                a broker refused: its code, and what it was about
|   +-- Fenced                 a newer producer took over this transactional id
|   +-- TransactionLost        this transaction can only be aborted
+-- OutcomeUnknown             nobody can say whether it happened: ask before trying again
+-- DeadlinePassed             retriable errors went on for too long; the last one is inside
"""

from __future__ import annotations

from fencepost.protocol import errors


class ClientError(Exception):
    """Anything that a caller of this client may want to catch."""


class BadClientSetting(ClientError):
    pass


class Unreachable(ClientError):
    pass


class AuthenticationFailed(ClientError):
    pass


class BrokerError(ClientError):
    """A definite refusal: the attempt had no effect."""

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
