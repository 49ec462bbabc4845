"""The exceptions that end a micro-batch without its commit.

SinkError                      the query must stop: why, and what the user can do
+-- BatchRefused               the sink cannot know whether Kafka has the micro-batch already
+-- BatchBroken                every attempt was aborted
+-- SinkFenced                 another producer has the transactional.id now
+-- AccessDenied               the cluster does not grant a permission that the sink needs
QueryStopped                   not an error: the query or job was stopped in the middle of a transaction, now aborted

A refusal of the Kafka cluster before anything is written (a wrong password, an unknown topic) is a ClientError, and a
frame with the wrong columns an UnwritableFrame.
"""

from __future__ import annotations

from dataclasses import dataclass


class SinkError(Exception):
    """The query must stop. The message says why, and what the user can do."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """A decision against a micro-batch, before it is raised as BatchRefused."""

    reason: str


class BatchRefused(SinkError):
    """The sink cannot know whether Kafka has the micro-batch already, or must not write it."""


class BatchBroken(SinkError):
    """The transaction was aborted, and nothing of the micro-batch is visible. Running it again may succeed."""


class SinkFenced(SinkError):
    """Another producer has the transactional.id now. This sink does not take it back; a new sink would."""


class AccessDenied(SinkError):
    """The cluster does not grant a permission that the sink needs. The message names it, and how to add it."""


class QueryStopped(Exception):
    """The query or job was stopped in the middle of a transaction, which was aborted. A restart runs it again."""
