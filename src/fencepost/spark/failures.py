"""What ends a batch other than its commit.

SinkError                      the query must stop: why, and what can be done
+-- BatchRefused               nobody can tell whether the batch is in Kafka already
+-- BatchBroken                the transaction was aborted, as often as it was tried
+-- SinkFenced                 another producer has the transactional.id now
QueryStopped                   not an error: the query was stopped in the middle of a batch, which was aborted

What a Kafka cluster refuses before anything is written (a wrong password, an unknown topic) is a ClientError, and a
frame with the wrong columns an UnwritableFrame.
"""

from __future__ import annotations


class SinkError(Exception):
    """The query must stop; the message says why, and what can be done."""


class BatchRefused(SinkError):
    """It cannot be told whether the batch is in Kafka already, or it must not be written."""


class BatchBroken(SinkError):
    """The transaction was aborted, and nothing of the batch was written. Running it again may succeed."""


class SinkFenced(SinkError):
    """Another producer has the transactional.id now. This sink does not take it back: a new one has to be made."""


class QueryStopped(Exception):
    """The query was stopped in the middle of a batch. The transaction was aborted; a restart runs the batch again."""
