"""An anomaly, and the kinds of anomalies: their names, what each means, whose mistake it usually is, what to do. Pure.

Names are those of Jepsen's Kafka workload, and of Adya and Elle (G0, G1a, G1b, G1c), where these have one. The order of
the table is the order of a report: the worst comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fencepost.verify.history import Event


class Anomaly(NamedTuple):
    kind: str  # A name of `KINDS`.
    what: str
    proof: tuple[Event, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


@dataclass(frozen=True, slots=True)
class AnomalyKind:
    name: str
    title: str
    meaning: str
    mistake: str  # Whose mistake it usually is.
    remedy: str
    # Kafka permits it: a report counts it, and it is no reason for a bad verdict.
    is_allowed: bool = False


_BROKER = "the broker's"
_KINDS = (
    AnomalyKind(
        "lost-write",
        "lost write",
        "The broker confirmed a record, or a reader got it, and in the end it is not in the log. In a compacted topic, "
        "neither is a newer one of its key.",
        "the broker's; with acks=1 or an unclean leader election also the settings'",
        "Compare `acks`, `min.insync.replicas` and `unclean.leader.election.enable`. If they are safe, report a bug.",
    ),
    AnomalyKind(
        "torn-transaction",
        "torn transaction",
        "Some records of a transaction are there, and others are missing for ever.",
        _BROKER,
        "Look for a marker that is missing in a partition: `fencepost txn history` and `fencepost tail` show markers.",
    ),
    AnomalyKind(
        "G1a",
        "aborted read",
        "A read_committed reader got a record of a transaction that was aborted.",
        "the broker's, or of a reader that is not read_committed although it says so",
        "Check `isolation.level` of the reader. If it is right, report a bug.",
    ),
    AnomalyKind(
        "missing-output",
        "missing output",
        "A committed input of a pipeline has no output in any output topic.",
        "the program's: it took the input for done before its output was safe",
        "Note what is done in the transaction that writes the outputs. With --group, the report tells skipped inputs "
        "from inputs that were not reached.",
    ),
    AnomalyKind(
        "torn-output",
        "output torn over topics",
        "An input of a pipeline has its output in one output topic and none in another.",
        "the program's: it writes the outputs of one input without a transaction, or in several",
        "Write all outputs of an input in one transaction.",
    ),
    AnomalyKind(
        "aborted-input",
        "output of an aborted input",
        "A program made outputs of an input whose transaction was aborted.",
        "the program's: its consumer reads uncommitted",
        "Set `isolation.level=read_committed` in the program's consumer. librdkafka has it by default, Java has not.",
    ),
    AnomalyKind(
        "unprocessed-input",
        "unprocessed input",
        "An input has no output yet, and the group's offset is not past it: a working program would process it.",
        "the program's, if it hangs or fails at each start; else the time was too short",
        "Look at the program's log. Give it more time with --settle, or fewer inputs with --rate.",
    ),
    AnomalyKind(
        "duplicate",
        "duplicate",
        "A record is in the log twice, or one input was processed in two committed transactions.",
        "the program's: it sends again what may have arrived, or its offsets are not in its transaction",
        "Send with idempotence or in a transaction, and send offsets with `send_offsets_to_transaction`.",
    ),
    AnomalyKind(
        "offsets-ahead",
        "offsets ahead of outputs",
        "A group's committed offset is past an input whose output is not there: the input is skipped for ever. Or a "
        "group was at an offset before the transaction that sent it was asked to commit.",
        "the program's, if it commits offsets outside of its transaction; else the broker's",
        "Send offsets with `send_offsets_to_transaction` only, and turn `enable.auto.commit` off.",
    ),
    AnomalyKind(
        "offsets-behind",
        "offsets behind outputs",
        "Outputs of a transaction are there, and its offsets are not: the inputs will be processed again.",
        "the program's, if it commits offsets outside of its transaction; else the broker's",
        "Send offsets with `send_offsets_to_transaction`, in the transaction that writes the outputs.",
    ),
    AnomalyKind(
        "fenced-write",
        "write of a fenced producer",
        "A producer wrote or committed after a newer producer had taken over its transactional id.",
        _BROKER,
        "Report a bug: the log has a record of an old producer epoch behind one of a newer epoch.",
    ),
    AnomalyKind(
        "precommitted-read",
        "read of the future",
        "A read_committed reader got a record before its transaction was asked to commit.",
        "the broker's: its last stable offset was too far",
        "Check `isolation.level` of the reader. If it is right, report a bug.",
    ),
    AnomalyKind(
        "stuck-LSO",
        "last stable offset that never moves",
        "All transactions are over, and the last stable offset is below the high watermark: readers wait for ever.",
        "the broker's: a transaction hangs, because a marker is missing or a record came after its marker",
        "`fencepost txn hanging` finds the transaction, and `fencepost txn abort` ends it.",
    ),
    AnomalyKind(
        "G1c",
        "circular information flow",
        "Transactions read each other's records in a circle, so one of them read before the other had committed.",
        "the broker's, or of a reader that is not read_committed although it says so",
        "Check `isolation.level` of the readers. If it is right, report a bug.",
    ),
    AnomalyKind(
        "G1b",
        "intermediate read",
        "A reader got some records of a transaction in a partition and passed over the others.",
        "the broker's, or the client library's",
        "Compare with another client library. If both skip the record, report a bug in the broker.",
    ),
    AnomalyKind(
        "poll-skip",
        "poll skip",
        "A reader passed over a record that it should have got, and that another read returned.",
        "the broker's, or the client library's",
        "Compare with another client library. If both skip the record, report a bug in the broker.",
    ),
    AnomalyKind(
        "nonmonotonic-poll",
        "non-monotonic poll",
        "A reader got an offset again, or one below an earlier one, although its position was not set back.",
        "the client library's, or of a program that does not note that its position was set back",
        "Look for a rebalance or a seek that the history does not have.",
    ),
    AnomalyKind(
        "nonmonotonic-send",
        "out of order",
        "Records are in the log in another order than the one in which they were sent and acknowledged, or outputs in "
        "another order than their inputs.",
        "the broker's; without idempotence also the producer's, which may have several requests on their way",
        "Check `enable.idempotence` of the producer. If it is on, report a bug.",
    ),
    AnomalyKind(
        "inconsistent-offsets",
        "inconsistent offsets",
        "One offset of a partition had two records: the log was changed after it was read or acknowledged.",
        "the broker's; also after an unclean leader election",
        "Compare `acks`, `min.insync.replicas` and `unclean.leader.election.enable`. If they are safe, report a bug.",
    ),
    AnomalyKind(
        "invented",
        "invented record",
        "A reader got a record that no writer of this run sent, or got it from another topic or partition; or an "
        "output was made from an input that no reader gets.",
        "usually another program that writes to the topic",
        "Give the run topics of its own. If it has them, report a bug.",
    ),
    AnomalyKind(
        "late-EndTxn",
        "late EndTxn (KIP-890)",
        "The commit or abort of a transaction arrived late and ended the next transaction of the same producer. With "
        "transaction version 1 both have the same producer epoch, so no broker can tell them apart.",
        "the protocol's, and neither the broker's nor the program's; transaction version 2 (KIP-890) cures it with an "
        "epoch for each transaction",
        "Use a cluster with transaction.version=2 (Apache Kafka 4.0 or later), and a client that supports it.",
    ),
    AnomalyKind(
        "late-Produce",
        "late Produce (KIP-890)",
        "A record of an aborted transaction arrived late and became part of a later transaction of the same producer, "
        "which committed it. With transaction version 1 both have the same producer epoch, so no broker can tell them "
        "apart.",
        "the protocol's, and neither the broker's nor the program's; transaction version 2 (KIP-890) cures it with an "
        "epoch for each transaction",
        "Use a cluster with transaction.version=2 (Apache Kafka 4.0 or later), and a client that supports it.",
    ),
    AnomalyKind(
        "reused-sequence",
        "reused sequence number",
        "A client gave two records the same sequence number: one of an aborted transaction, whose Produce was not "
        "answered, and one of a later transaction. The broker took the second one for a repeated request and "
        "acknowledged it, so it is not in the log, even if its transaction was committed.",
        "the client library's: librdkafka continues from the last answer that it got",
        "Use a cluster with transaction.version=2 and a client that supports it; or, with librdkafka, make a new "
        "producer after an abort in which `abort_transaction` timed out or a delivery failed.",
    ),
    AnomalyKind(
        "G0",
        "write cycle",
        "The records of two transactions that overlap are in different order in different partitions.",
        "none: Kafka promises no order between transactions that overlap",
        "Nothing. If the order matters, write with one producer, or to one partition.",
        is_allowed=True,
    ),
)
KINDS = {kind.name: kind for kind in _KINDS}


def title_of(anomaly: Anomaly) -> str:
    """With its name in Jepsen's reports, such as `aborted read (G1a)`."""
    return f"{KINDS[anomaly.kind].title} ({anomaly.kind})"
