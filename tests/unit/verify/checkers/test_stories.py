"""Every checker has histories of a few lines that it must accuse, and others that it must not."""

from __future__ import annotations

import pytest

from fencepost.verify.checkers import CHECKERS
from fencepost.verify.checkers.kinds import KINDS
from tests.unit.verify.checkers.stories import found_in, kinds_in
from tests.unit.verify.test_pipeline_checker import ACCUSED as OF_PIPELINES

A_COMMIT = """
w begin 1
w sends a to tea-0
w sends b to tea-1
w commits 1
w ended 1 committed
"""
AN_ABORT = """
w begin 1
w sends a to tea-0
w sends b to tea-0
w aborts 1
w ended 1 aborted
"""
IN_DOUBT = """
w begin 1
w sends a to tea-0
w sends b to tea-1
w commits 1
"""
TWO_WITH_ONE_EPOCH = """
w init t 1 0 1
w begin 1
w sends a to tea-0
w {first} 1
w ended 1 {first_outcome}
w begin 2
w sends b to tea-0
w sends c to tea-0
w {second} 2
w ended 2 {second_outcome}
"""
LATE_COMMIT = TWO_WITH_ONE_EPOCH.format(
    first="commits", first_outcome="committed", second="aborts", second_outcome="aborted INVALID_TXN_STATE"
)
FENCED_AFTER_A_COMMIT = (
    LATE_COMMIT.replace("INVALID_TXN_STATE", "PRODUCER_FENCED")
    + "r reads tea-0: 0=a 2=b 3=c\nrest\nlog tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=c/1.0 4=commit/1.0"
)
A_LONG_DELAY = "fault delay EndTxn 4s request skip=5 (1 time)\n"
# The commit of the first transaction is late: its client waited for three seconds, and repeated it.
AFTER_A_SLOW_COMMIT = (
    A_LONG_DELAY
    + """w init t 1 0 1
w begin 1
w sends a to tea-0
w commits 1
3s pass
w ended 1 committed
w begin 2
w sends b to tea-0
"""
)
READ_BEFORE_ITS_COMMIT = """r reads tea-0: 2=b
w commits 2
w ended 2 committed
rest
log tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=commit/1.0
"""
TWO_OF_A_SLOW_PRODUCER = (
    AFTER_A_SLOW_COMMIT
    + """w acked b tea-0@2
w sends c to tea-0
w acked c tea-0@3
w commits 2
w ended 2 committed
rest
"""
)
A_COPY_AFTER_A_SLOW_COMMIT = (
    AFTER_A_SLOW_COMMIT
    + """w offsets 2 g cup-0@5
w aborts 2
w ended 2 aborted
r reads tea-0: 2=b
rest
"""
)
LATE_ABORT = TWO_WITH_ONE_EPOCH.format(
    first="aborts", first_outcome="aborted", second="commits", second_outcome="committed"
)
A_LATE_PRODUCE = """
w init t 1 0 1
w begin 1
w sends a to tea-0
w aborts 1
w ended 1 aborted
w begin 2
w sends b to tea-0
w acked b tea-0@2
w commits 2
w ended 2 committed
r reads tea-0: 1=a 2=b
rest
"""
A_COPY = """
c begin 1
c sends out-1 to cup-0 of tea-0@4
c offsets 1 g tea-0@5
"""

COPIED = "g copies cup" + A_COPY + "c commits 1\nc ended 1 committed\n"
TWO_OF_A_KEY = """
cup keeps compact
w begin 1
w sends a to cup-0 key k
w sends b to cup-0 key k
w commits 1
w ended 1 committed
"""
RETAINED = """
cup keeps delete
w sends a to cup-0
w acked a cup-0@0
w sends b to cup-0
w acked b cup-0@1
w sends c to cup-0
w acked c cup-0@2
"""

# The late commit came after the offsets of the second transaction, and before its output.
OFFSETS_OF_A_LATE_COMMIT = (
    "g copies tea\n"
    + AFTER_A_SLOW_COMMIT.replace("sends b to tea-0", "sends b to tea-0 of cup-0@0")
    + """w offsets 2 g cup-0@1
w aborts 2
w ended 2 aborted TRANSACTION_ABORTABLE
"""
)
AHEAD_AT_REST = """rest
log tea-0: 0=a/1.0 1=commit/1.0
log tea-1:
r reads cup-0: 0=i
g is cup-0@1
"""
AN_UNANSWERED_ABORT = """
w init t 1 0 1
w begin 1
w sends a to tea-0
w aborts 1
w ended 1 aborted
"""
TAKEN_FOR_A_DUPLICATE = """w begin 2
w sends b to tea-0
w acked b tea-0@0
w sends c to tea-1
w acked c tea-1@0
w commits 2
w ended 2 committed
rest
log tea-0: 0=a/1.0 1=abort/1.0 2=commit/1.0
log tea-1: 0=c/1.0 1=commit/1.0
"""
A_REUSED_SEQUENCE = AN_UNANSWERED_ABORT + TAKEN_FOR_A_DUPLICATE

# What the story has, the kinds of its anomalies, the story.
ACCUSED = [
    # Records.
    ("a commit of which nothing is there", "lost-write", A_COMMIT + "rest\nr reads tea-0:\nr reads tea-1:"),
    (
        "an acknowledged record that is gone",
        "lost-write",
        "w sends a to tea-0\nw acked a tea-0@3\nrest\nr reads tea-0:",
    ),
    (
        "a transaction in doubt that was read and is gone",
        "lost-write",
        IN_DOUBT + "r reads tea-0: 1=a\nrest\nr reads tea-0:\nr reads tea-1:",
    ),
    ("a commit of which a part is there", "torn-transaction", A_COMMIT + "rest\nr reads tea-0: 0=a\nr reads tea-1:"),
    ("a part of a transaction in doubt", "torn-transaction", IN_DOUBT + "rest\nr reads tea-0:\nr reads tea-1: 0=b"),
    (
        "a commit with one marker of two",
        "torn-transaction",
        A_COMMIT + "rest\nlog tea-0: 0=a/1.0 1=commit/1.0\nlog tea-1: 0=b/1.0",
    ),
    ("an aborted record that is read", "G1a", AN_ABORT + "r reads tea-0: 0=a"),
    (
        "a record that is read before the commit is asked for",
        "precommitted-read",
        "w begin 1\nw sends a to tea-0\nr reads tea-0: 0=a\nw commits 1\nw ended 1 committed",
    ),
    (
        "a record that is read without a commit",
        "precommitted-read",
        "w begin 1\nw sends a to tea-0\nr reads tea-0: 0=a",
    ),
    ("a record at two offsets", "duplicate", A_COMMIT + "r reads tea-0: 0=a 1=a"),
    (
        "an input that is processed twice",
        "duplicate",
        A_COPY
        + "c commits 1\nc ended 1 committed\nd begin 1\nd sends out-2 to cup-0 of tea-0@4\nd commits 1\n"
        + "d ended 1 committed\nr reads cup-0: 0=out-1 2=out-2",
    ),
    ("a record that no writer sent", "invented", A_COMMIT + "r reads tea-0: 0=a 5=z"),
    ("a record in another partition", "invented", A_COMMIT + "r reads tea-1: 0=a"),
    (
        "a commit in doubt that appears after a reader has passed it",
        "poll-skip",
        (
            "w begin 1\nw sends a to tea-0\nw commits 1\nw ended 1 unknown\nv sends b to tea-0\n"
            "r assign tea-0@0 read_committed\nr reads tea-0: 3=b\nrest\ns reads tea-0: 0=a 3=b"
        ),
    ),
    (
        "a commit of which only a topic with a retention could have the rest",
        "lost-write",
        "cup keeps delete" + A_COMMIT.replace("tea-1", "cup-0") + "rest\nr reads tea-0:\nr reads cup-0:",
    ),
    # Topics that do not keep every record.
    ("a key without its newest record", "lost-write", TWO_OF_A_KEY + "rest\nr reads cup-0: 0=a"),
    ("a key without any record", "lost-write", TWO_OF_A_KEY + "rest\nr reads cup-0:"),
    ("a record that is newer than others that are left", "lost-write", RETAINED + "rest\nr reads cup-0: 0=a 2=c"),
    # Inputs.
    (
        "an output of an input that is not there",
        "invented",
        A_COPY + "c commits 1\nc ended 1 committed\nrest\nr reads cup-0: 0=out-1\nr reads tea-0: 3=x",
    ),
    (
        "an input that was never copied",
        "offsets-ahead",
        COPIED + "rest\nr reads tea-0: 3=x 4=y\nr reads cup-0: 0=out-1\nr reads cup-1:\ng is tea-0@5",
    ),
    (
        "outputs in another order than their inputs",
        "nonmonotonic-send",
        COPIED + "d begin 1\nd sends out-2 to cup-0 of tea-0@3\nd commits 1\nd ended 1 committed\n"
        "rest\nr reads cup-0: 0=out-1 2=out-2",
    ),
    # After a power loss.
    (
        "a commit that a power loss took",
        "lost-write",
        A_COMMIT + "power loss\nrest\nr reads tea-0:\nr reads tea-1:",
    ),
    (
        "an offset of a commit that was used again after a power loss",
        "inconsistent-offsets",
        A_COMMIT + "w acked a tea-0@0\npower loss\nv sends c to tea-0\nr reads tea-0: 0=c",
    ),
    # Order.
    (
        "a record before one that was acknowledged earlier",
        "nonmonotonic-send",
        "w sends a to tea-0\nw acked a tea-0@5\nv sends b to tea-0\nv acked b tea-0@4",
    ),
    (
        "a transaction whose records change places",
        "nonmonotonic-send",
        AN_ABORT.replace("w aborts", "w acked b tea-0@1\nw acked a tea-0@2\nw aborts"),
    ),
    (
        "an offset with two records",
        "inconsistent-offsets",
        "w sends a to tea-0\nw sends b to tea-0\nw acked a tea-0@0\nr reads tea-0: 0=b",
    ),
    (
        "a log that was written over",
        "lost-write inconsistent-offsets",
        "w sends a to tea-0\nw acked a tea-0@0\nw sends b to tea-0\nrest\nlog tea-0: 0=b/-1.-1",
    ),
    # Polls.
    ("an offset twice", "nonmonotonic-poll", A_COMMIT + "r reads tea-0: 0=a\nr reads tea-0: 0=a"),
    (
        "an offset below the assigned one",
        "nonmonotonic-poll",
        A_COMMIT + "r assign tea-0@5 read_committed\nr reads tea-0: 0=a",
    ),
    (
        "a record that another reader got",
        "poll-skip",
        (
            "w sends a to tea-0\nw sends b to tea-0\nr reads tea-0: 0=a 1=b\n"
            "s assign tea-0@0 read_committed\ns reads tea-0: 1=b"
        ),
    ),
    (
        "a record at the end that a reader passes over",
        "poll-skip",
        A_COMMIT + "r assign tea-0@0 read_committed\nr reads tea-0: to 5\nrest\ns reads tea-0: 3=a",
    ),
    (
        "a record in the middle of a transaction",
        "G1b",
        AN_ABORT.replace("abort", "commit")
        .replace("commited", "committed")
        .replace("w commits", "w sends c to tea-0\nw commits")
        + "r reads tea-0: 0=a 1=b 2=c\ns reads tea-0: 0=a 2=c",
    ),
    # Offsets.
    (
        "a group behind its outputs",
        "offsets-behind",
        A_COPY + "c commits 1\nc ended 1 committed\nrest\nr reads cup-0: 0=out-1\ng is tea-0@4",
    ),
    (
        "a group behind the outputs of a transaction in doubt",
        "offsets-behind",
        A_COPY + "c commits 1\nrest\nr reads cup-0: 0=out-1\ng is tea-0@4",
    ),
    (
        "a group at the offset of an aborted transaction",
        "offsets-ahead",
        A_COPY + "c aborts 1\nc ended 1 aborted\nrest\nr reads cup-0:\ng is tea-0@5",
    ),
    (
        "a group at an offset before its commit is asked for",
        "offsets-ahead",
        A_COPY + "g is tea-0@5\nc commits 1\nc ended 1 committed",
    ),
    (
        "an input that was skipped, and others after it",
        "offsets-ahead",
        A_COPY
        + "c aborts 1\nc ended 1 aborted\nc begin 2\nc sends out-2 to cup-0 of tea-0@5\nc offsets 2 g tea-0@6\n"
        + "c commits 2\nc ended 2 committed\nrest\nr reads cup-0: 3=out-2\ng is tea-0@6",
    ),
    # Producers.
    ("a record of an older epoch", "fenced-write", "rest\nlog tea-0: 0=a/1.0 1=abort/1.1 2=b/1.0 3=abort/1.1"),
    (
        "a record that is acknowledged for a fenced producer",
        "fenced-write",
        "w init t 1 0 2\nw begin 1\nv init t 1 1 2\nw sends a to tea-0\nw acked a tea-0@0",
    ),
    (
        "a commit of a fenced producer",
        "fenced-write",
        "w init t 1 0 2\nw begin 1\nw sends a to tea-0\nv init t 1 1 2\nw commits 1\nw ended 1 committed",
    ),
    ("readers that wait for ever", "stuck-LSO", "rest\ntea-0 lso 5 hw 9"),
    # Cycles.
    (
        "two transactions that read each other",
        "G1c",
        (
            "c begin 1\nd begin 1\nc sends x to tea-0 of cup-0@0\nc acked x tea-0@0\n"
            "d sends y to cup-0 of tea-0@0\nd acked y cup-0@0"
        ),
    ),
    ("a transaction that reads itself", "G1c", "c begin 1\nc sends x to tea-0 of tea-0@0\nc acked x tea-0@0"),
    (
        "two transactions in different orders",
        "G0",
        (
            "w begin 1\nw sends a to tea-0\nw sends b to tea-1\nv begin 1\nv sends c to tea-0\nv sends d to tea-1\n"
            "w commits 1\nv commits 1\nr reads tea-0: 0=a 1=c\nr reads tea-1: 0=d 1=b"
        ),
    ),
    # The late EndTxn.
    ("a commit that came late, by the answer", "late-EndTxn", LATE_COMMIT + "r reads tea-0: 0=a 2=b 3=c"),
    (
        "a commit that came late, by the log",
        "late-EndTxn",
        LATE_COMMIT + "r reads tea-0: 0=a 2=b 3=c\nrest\nlog tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=c/1.0 4=commit/1.0",
    ),
    (
        "a commit that came late, in the middle of a transaction",
        "late-EndTxn",
        LATE_COMMIT.replace(" INVALID_TXN_STATE", "")
        + "r reads tea-0: 0=a 2=b\nrest\nlog tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=commit/1.0 4=c/1.0 5=abort/1.0",
    ),
    (
        "a commit that came very late",
        "late-EndTxn",
        LATE_COMMIT.replace("w begin 2", "w begin 7\nw aborts 7\nw ended 7 aborted\nw begin 2")
        + "r reads tea-0: 0=a 2=b 3=c\nrest\nlog tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=c/1.0 4=commit/1.0",
    ),
    (
        "a commit that came late, of a client whose Produce was refused after it",
        "late-EndTxn",
        LATE_COMMIT.replace("INVALID_TXN_STATE", "TRANSACTION_ABORTABLE")
        + "r reads tea-0: 0=a 2=b 3=c\nrest\nlog tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=c/1.0 4=commit/1.0",
    ),
    (
        "a commit that came late, of a client that was fenced, while EndTxn was delayed on purpose",
        "late-EndTxn",
        A_LONG_DELAY + FENCED_AFTER_A_COMMIT.replace("w ended 1", "3s pass\nw ended 1"),
    ),
    (
        "a read before its commit, while EndTxn was delayed on purpose",
        "late-EndTxn",
        AFTER_A_SLOW_COMMIT + READ_BEFORE_ITS_COMMIT,
    ),
    (
        "a read before its commit, while all requests were delayed on purpose",
        "late-EndTxn",
        AFTER_A_SLOW_COMMIT.replace("EndTxn 4s", "* 4s") + READ_BEFORE_ITS_COMMIT,
    ),
    (
        "a read before its commit, which was refused",
        "late-EndTxn",
        AFTER_A_SLOW_COMMIT.replace(A_LONG_DELAY, "")
        + READ_BEFORE_ITS_COMMIT.replace("ended 2 committed", "ended 2 unknown _FATAL"),
    ),
    (
        "a read before its commit, with a marker among its records",
        "late-EndTxn",
        AFTER_A_SLOW_COMMIT.replace(A_LONG_DELAY, "")
        + "r reads tea-0: 2=b\nw sends c to tea-0\nw commits 2\nw ended 2 committed\n"
        "rest\nlog tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=commit/1.0 4=c/1.0 5=commit/1.0",
    ),
    (
        "a commit that came late, of a client that was killed before it had ended its transaction",
        "late-EndTxn",
        AFTER_A_SLOW_COMMIT + "w ended 2 aborted KILLED\nr reads tea-0: 2=b\n"
        "rest\nlog tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=commit/1.0",
    ),
    (
        "a commit that came late, before the offsets of a transaction were sent, which was aborted",
        "late-EndTxn",
        A_COPY_AFTER_A_SLOW_COMMIT + "log tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=commit/1.0",
    ),
    (
        "a commit that came late, of a transaction whose other records its successor aborted",
        "late-EndTxn",
        AFTER_A_SLOW_COMMIT + "w sends c to tea-0\nw commits 2\nw ended 2 unknown\nrest\nr reads tea-0: 0=a 2=b\n"
        "log tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=commit/1.0 4=c/1.0 5=abort/1.1",
    ),
    (
        "an abort that came late",
        "late-EndTxn",
        LATE_ABORT + "rest\nr reads tea-0: 4=c\n"
        "log tea-0: 0=a/1.0 1=abort/1.0 2=b/1.0 3=abort/1.0 4=c/1.0 5=commit/1.0",
    ),
    (
        "an abort that came late, and a record behind it that is read before its commit",
        "late-EndTxn precommitted-read",
        LATE_ABORT.replace("w commits 2", "r reads tea-0: 4=c\nw commits 2") + "rest\ns reads tea-0: 4=c\n"
        "log tea-0: 0=a/1.0 1=abort/1.0 2=b/1.0 3=abort/1.0 4=c/1.0 5=commit/1.0",
    ),
    # The late Produce.
    (
        "a record that came behind the abort of its transaction, and was committed with the next one",
        "late-Produce",
        A_LATE_PRODUCE + "log tea-0: 0=abort/1.0 1=a/1.0 2=b/1.0 3=commit/1.0",
    ),
    (
        "a record that came late, of a transaction whose other record came in time",
        "late-Produce",
        A_LATE_PRODUCE.replace("w begin 1", "w begin 1\nw sends c to tea-0\nw acked c tea-0@0")
        .replace("1=a 2=b", "2=a 3=b")
        .replace("acked b tea-0@2", "acked b tea-0@3")
        + "log tea-0: 0=c/1.0 1=abort/1.0 2=a/1.0 3=b/1.0 4=commit/1.0",
    ),
    (
        "a commit that came late and moved a group, while its transaction was open",
        "late-EndTxn",
        OFFSETS_OF_A_LATE_COMMIT.replace("w aborts 2", "g is cup-0@1\nw aborts 2"),
    ),
    (
        "a commit that came late and moved a group past an input without an output",
        "late-EndTxn",
        OFFSETS_OF_A_LATE_COMMIT + AHEAD_AT_REST,
    ),
    (
        "the same, and the input was tried again in vain",
        "late-EndTxn",
        OFFSETS_OF_A_LATE_COMMIT
        + "w begin 3\nw sends c to tea-0 of cup-0@0\nw aborts 3\nw ended 3 aborted\n"
        + AHEAD_AT_REST,
    ),
    (
        "a commit that came late and moved a group with the outputs, as the log shows",
        "late-EndTxn",
        OFFSETS_OF_A_LATE_COMMIT.replace(A_LONG_DELAY, "").replace("w aborts 2", "g is cup-0@1\nw aborts 2")
        + AHEAD_AT_REST.replace("1=commit/1.0", "1=commit/1.0 2=b/1.0 3=commit/1.0"),
    ),
    (
        "a commit that came late and moved a group before its transaction was asked to commit",
        "late-EndTxn",
        OFFSETS_OF_A_LATE_COMMIT.replace("w aborts 2", "g is cup-0@1\nw commits 2").replace(
            "aborted TRANSACTION_ABORTABLE", "committed"
        ),
    ),
    # A sequence number that a client used twice.
    ("a record that was taken for an aborted one", "reused-sequence", A_REUSED_SEQUENCE),
    (
        "a record that was taken for an aborted one, which a reader got",
        "reused-sequence",
        A_REUSED_SEQUENCE.replace("w aborts 1", "u assign tea-0@0 read_uncommitted\nu reads tea-0: 0=a\nw aborts 1"),
    ),
    (
        "a copy that was taken for an aborted one, in a transaction in doubt",
        "reused-sequence",
        "g copies tea\n"
        + A_REUSED_SEQUENCE.replace("sends b to tea-0", "sends b to tea-0 of cup-0@0")
        .replace("w commits 2", "w offsets 2 g cup-0@1\nw commits 2")
        .replace("w ended 2 committed\n", "")
        + "r reads cup-0: 0=i\ng is cup-0@1",
    ),
]

NOT_ACCUSED = [
    ("nothing at all", ""),
    ("a commit that is there", A_COMMIT + "rest\nr reads tea-0: 0=a\nr reads tea-1: 0=b"),
    (
        "a commit that is in the log",
        A_COMMIT + "rest\nlog tea-0: 0=a/1.0 1=commit/1.0\nlog tea-1: 0=b/1.0 1=commit/1.0",
    ),
    ("a commit that was not looked for at rest", A_COMMIT + "r reads tea-0:\nr reads tea-1:"),
    ("a commit in a partition that was not read at rest", A_COMMIT + "rest\nr reads tea-0: 0=a"),
    ("an abort that is not there", AN_ABORT + "rest\nr reads tea-0:"),
    ("a transaction in doubt that is there", IN_DOUBT + "rest\nr reads tea-0: 0=a\nr reads tea-1: 0=b"),
    ("a transaction in doubt that is not there", IN_DOUBT + "rest\nr reads tea-0:\nr reads tea-1:"),
    (
        "an aborted record for a read_uncommitted reader",
        AN_ABORT + "r assign tea-0@0 read_uncommitted\nr reads tea-0: 0=a",
    ),
    ("a record that is read while its commit is on its way", IN_DOUBT + "r reads tea-0: 0=a\nw ended 1 committed"),
    ("a record that was not acknowledged", "w sends a to tea-0\nrest\nr reads tea-0:"),
    ("a record that two readers get", A_COMMIT + "r reads tea-0: 0=a\ns reads tea-0: 0=a"),
    (
        "a record that is read again from the beginning",
        A_COMMIT + "r reads tea-0: 0=a\nr assign tea-0@0 read_committed\nr reads tea-0: 0=a",
    ),
    (
        "two outputs of one input in one transaction",
        A_COPY + "c sends out-2 to cup-1 of tea-0@4\nc commits 1\nc ended 1 committed\n"
        "r reads cup-0: 0=out-1\nr reads cup-1: 0=out-2",
    ),
    (
        "an input that two groups process, each into a topic of its own",
        A_COPY + "c commits 1\nc ended 1 committed\nd begin 1\nd sends out-2 to mug-0 of tea-0@4\nd commits 1\n"
        "d ended 1 committed\nr reads cup-0: 0=out-1\nr reads mug-0: 0=out-2",
    ),
    (
        "an input that is processed again after an abort",
        A_COPY + "c aborts 1\nc ended 1 aborted\nc begin 2\nc sends out-2 to cup-0 of tea-0@4\n"
        "c offsets 2 g tea-0@5\nc commits 2\nc ended 2 committed\nrest\nr reads cup-0: 2=out-2\n"
        "g is tea-0@5",
    ),
    ("a key with its newest record", TWO_OF_A_KEY + "rest\nr reads cup-0: 1=b"),
    (
        "a key with a newer record of unknown outcome",
        TWO_OF_A_KEY + "w begin 2\nw sends c to cup-0 key k\nw commits 2\nrest\nr reads cup-0: 3=c",
    ),
    ("a topic that has lost its oldest records", RETAINED + "rest\nr reads cup-0: 2=c"),
    ("a topic that has lost all its records", RETAINED + "rest\nr reads cup-0:"),
    (
        "a record that was there for one reader, and not for a later one",
        RETAINED + "r assign cup-0@0 read_committed\nr reads cup-0: 0=a 1=b 2=c\n"
        "s assign cup-0@0 read_committed\ns reads cup-0: 1=b 2=c",
    ),
    (
        "inputs that were copied in order, and one that is still to come",
        COPIED
        + "d begin 1\nd sends out-2 to cup-0 of tea-0@6\nd offsets 1 g tea-0@7\nd commits 1\nd ended 1 committed\n"
        "rest\nr reads tea-0: 4=y 6=x 8=z\nr reads cup-0: 0=out-1 2=out-2\nr reads cup-1:\ng is tea-0@7",
    ),
    (
        "outputs of one transaction in any order",
        "g copies cup" + A_COPY + "c sends out-2 to cup-0 of tea-0@3\nc commits 1\nc ended 1 committed\n"
        "rest\nr reads cup-0: 0=out-1 1=out-2",
    ),
    (
        "an acknowledged record that a power loss took",
        "w sends a to tea-0\nw acked a tea-0@3\npower loss\nrest\nr reads tea-0:",
    ),
    (
        "an offset that is used again after a power loss",
        AN_ABORT + "w acked a tea-0@0\npower loss\nv begin 1\nv sends c to tea-0\nv acked c tea-0@0\nv commits 1\n"
        "v ended 1 committed\nr reads tea-0: 0=c",
    ),
    (
        "an offset of a record that was given up, and that a power loss took, as the next record at it",
        AN_UNANSWERED_ABORT.replace("w aborts 1", "u assign tea-0@0 read_uncommitted\nu reads tea-0: 0=a\nw aborts 1")
        + "power loss\nw begin 2\nw sends b to tea-0\nw acked b tea-0@0\npower loss\nw aborts 2\n"
        "w ended 2 aborted\nrest\nlog tea-0:",
    ),
    (
        "a record that was sent after a power loss, at an offset that a reader had passed before it",
        (
            "u assign tea-0@0 read_uncommitted\nu reads tea-0: to 1\npower loss\nu assign tea-0@0 read_uncommitted\n"
            "v sends c to tea-0\nv acked c tea-0@0\nu reads tea-0: 0=c\nrest\nr reads tea-0: 0=c"
        ),
    ),
    (
        "a record that only a read_uncommitted reader got before a power loss",
        AN_ABORT + "u assign tea-0@0 read_uncommitted\nu reads tea-0: 0=a\npower loss\nv begin 1\nv sends c to tea-0\n"
        "v commits 1\nv ended 1 committed\nu assign tea-0@0 read_uncommitted\nu reads tea-0: 1=c",
    ),
    ("records of a topic that the history does not write", "r reads cup-0: 0=x 1=x"),
    (
        "records that are on their way at the same time",
        "w sends a to tea-0\nv sends b to tea-0\nw acked a tea-0@1\nv acked b tea-0@0",
    ),
    (
        "an offset that the client does not know",
        "w sends a to tea-0\nw sends b to tea-0\nw acked a tea-0@-1\nw acked b tea-0@-1",
    ),
    (
        "an aborted record that a reader passes over",
        AN_ABORT + "v sends c to tea-0\nu assign tea-0@0 read_uncommitted\nu reads tea-0: 0=a 1=b 3=c\n"
        "r assign tea-0@0 read_committed\nr reads tea-0: 3=c",
    ),
    ("a group at its outputs", A_COPY + "c commits 1\nc ended 1 committed\nrest\nr reads cup-0: 0=out-1\ng is tea-0@5"),
    ("a group before a transaction in doubt", A_COPY + "c commits 1\nrest\nr reads cup-0:\ng is tea-0@4"),
    ("a group at a transaction in doubt", A_COPY + "c commits 1\nrest\nr reads cup-0: 0=out-1\ng is tea-0@5"),
    (
        "a fenced producer that notes late that it was initialised",
        "v init t 1 1 2\nv begin 1\nw init t 1 0 2\nv sends a to tea-0\nv acked a tea-0@0",
    ),
    ("a group that no transaction commits for", "g is tea-0@5\nrest\ng is tea-0@5"),
    ("a group at an offset whose commit is on its way", A_COPY + "c commits 1\ng is tea-0@5\nc ended 1 committed"),
    (
        "a reader that stops before a record",
        A_COMMIT + "r assign tea-0@0 read_committed\nr reads tea-0: to 3\nrest\ns reads tea-0: 3=a",
    ),
    ("epochs that rise", "rest\nlog tea-0: 0=a/1.0 1=commit/1.1 2=b/1.1 3=commit/1.2 4=c/2.0 5=commit/2.1"),
    (
        "a fenced producer that is refused",
        "w init t 1 0 2\nw begin 1\nv init t 1 1 2\nw sends a to tea-0\nw ended 1 aborted PRODUCER_FENCED",
    ),
    (
        "a producer that takes its id back",
        (
            "w init t 1 0 2\nv init t 1 1 2\nw init t 1 2 2\nw begin 1\nw sends a to tea-0\n"
            "w acked a tea-0@0\nw commits 1\nw ended 1 committed"
        ),
    ),
    ("a last stable offset at the end", "rest\ntea-0 lso 9 hw 9"),
    ("a last stable offset that waits during the run", "tea-0 lso 5 hw 9\nrest\ntea-0 lso 9 hw 9"),
    (
        "a chain of transactions that read each other",
        (
            "w begin 1\nw sends a to tea-0\nw acked a tea-0@0\nw commits 1\nw ended 1 committed\n"
            "c begin 1\nc sends x to cup-0 of tea-0@0\nc acked x cup-0@0"
        ),
    ),
]

# Circumstances like those of a late EndTxn or Produce, without its proof: the broker is to blame.
NOT_EXCUSED = [
    (
        "the records are aborted, as it was asked for after another abort",
        "G1a",
        TWO_WITH_ONE_EPOCH.format(first="aborts", first_outcome="aborted", second="aborts", second_outcome="aborted")
        + "r reads tea-0: 2=b\nrest\nlog tea-0: 0=a/1.0 1=abort/1.0 2=b/1.0 3=c/1.0 4=abort/1.0",
    ),
    (
        "version 2 has an epoch for each transaction",
        "G1a",
        LATE_COMMIT.replace("1 0 1", "1 0 2") + "r reads tea-0: 0=a 2=b",
    ),
    (
        "the log has the abort that was asked for",
        "G1a",
        LATE_COMMIT.replace(" INVALID_TXN_STATE", "")
        + "r reads tea-0: 2=b\nrest\nlog tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=c/1.0 4=abort/1.0",
    ),
    (
        "the marker is wrong, and the abort was answered with success",
        "G1a",
        LATE_COMMIT.replace(" INVALID_TXN_STATE", "")
        + "r reads tea-0: 2=b\nrest\nlog tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=c/1.0 4=commit/1.0",
    ),
    ("the client was fenced, and EndTxn was not disturbed", "G1a", FENCED_AFTER_A_COMMIT),
    (
        "the first transaction of a producer",
        "G1a",
        "w init t 1 0 1" + AN_ABORT.replace("aborted", "aborted INVALID_TXN_STATE") + "r reads tea-0: 0=a",
    ),
    (
        "the records that came last are missing",
        "torn-transaction",
        LATE_ABORT + "rest\nr reads tea-0: 2=b\n"
        "log tea-0: 0=a/1.0 1=abort/1.0 2=b/1.0 3=commit/1.0 4=c/1.0 5=abort/1.0",
    ),
    (
        "a read before its commit, with markers in order",
        "precommitted-read",
        (
            "w init t 1 0 1\nw begin 1\nw sends a to tea-0\nw commits 1\nw ended 1 committed\n"
            "w begin 2\nw sends b to tea-0\nr reads tea-0: 2=b\nw commits 2\nw ended 2 committed\n"
            "rest\nlog tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=commit/1.0"
        ),
    ),
    # With a fault that can make an EndTxn late.
    (
        "an acknowledged record of a commit is not in the log",
        "torn-transaction",
        TWO_OF_A_SLOW_PRODUCER + "r reads tea-0: 0=a 2=b\nlog tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 4=commit/1.0",
    ),
    (
        "no record of a commit is in the log",
        "lost-write",
        TWO_OF_A_SLOW_PRODUCER + "r reads tea-0: 0=a\nlog tea-0: 0=a/1.0 1=commit/1.0 4=commit/1.0",
    ),
    (
        "a record of a commit is aborted, and no marker stands before it",
        "torn-transaction",
        TWO_OF_A_SLOW_PRODUCER.replace("c to tea-0", "c to tea-1").replace("c tea-0@3", "c tea-1@0")
        + "r reads tea-0: 0=a 2=b\nr reads tea-1:\n"
        "log tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=commit/1.0\nlog tea-1: 0=c/1.0 1=abort/1.0",
    ),
    (
        "a record of a commit is in the log, and no read returns it",
        "torn-transaction",
        TWO_OF_A_SLOW_PRODUCER + "r reads tea-0: 0=a 3=c\nlog tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=c/1.0 4=commit/1.0",
    ),
    (
        "a read before its commit, of a producer whose requests were answered at once",
        "precommitted-read",
        AFTER_A_SLOW_COMMIT.replace("3s pass\n", "") + READ_BEFORE_ITS_COMMIT,
    ),
    (
        "a read before its commit, of a transaction that began after the late request had come",
        "precommitted-read",
        AFTER_A_SLOW_COMMIT.replace("w begin 2", "5s pass\nw begin 2") + READ_BEFORE_ITS_COMMIT,
    ),
    (
        "a read before its marker, which stands behind a record that was sent later",
        "precommitted-read",
        AFTER_A_SLOW_COMMIT + "r reads tea-0: 2=b\nv sends c to tea-0\nw commits 2\nw ended 2 committed\n"
        "rest\nlog tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=c/-1.-1 4=commit/1.0",
    ),
    (
        "a read before its commit, of a record behind the marker among the records",
        "precommitted-read",
        AFTER_A_SLOW_COMMIT.replace(A_LONG_DELAY, "")
        + "w sends c to tea-0\nr reads tea-0: 2=b 4=c\nw commits 2\nw ended 2 committed\n"
        "rest\nlog tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=commit/1.0 4=c/1.0 5=commit/1.0",
    ),
    (
        "a read before its commit, of a producer with another epoch",
        "precommitted-read",
        AFTER_A_SLOW_COMMIT + READ_BEFORE_ITS_COMMIT.replace("2=b/1.0 3=commit/1.0", "2=b/1.1 3=commit/1.1"),
    ),
    (
        "the offsets of the aborted transaction were not sent",
        "G1a",
        A_COPY_AFTER_A_SLOW_COMMIT.replace("w offsets 2 g cup-0@5\n", "")
        + "log tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=commit/1.0",
    ),
    (
        "the marker of a copier is wrong, and stands behind a record that was sent after the abort",
        "G1a",
        A_COPY_AFTER_A_SLOW_COMMIT.replace("w ended 2", "v sends c to tea-0\nw ended 2")
        + "log tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=c/-1.-1 4=commit/1.0",
    ),
    # Without one.
    (
        "the marker of a copier is wrong, and the abort was answered with success",
        "G1a",
        A_COPY_AFTER_A_SLOW_COMMIT.replace(A_LONG_DELAY, "") + "log tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=commit/1.0",
    ),
    (
        "a record behind the late commit is aborted, and a reader got it too",
        "G1a",
        LATE_COMMIT.replace(" INVALID_TXN_STATE", "")
        + "r reads tea-0: 0=a 2=b 4=c\nrest\nlog tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=commit/1.0 4=c/1.0 5=abort/1.0",
    ),
    (
        "the first record of an aborted transaction is aborted, and the second committed",
        "G1a",
        LATE_COMMIT.replace(" INVALID_TXN_STATE", "").replace("c to tea-0", "c to tea-1")
        + "r reads tea-1: 0=c\nrest\nlog tea-0: 0=a/1.0 1=commit/1.0 2=b/1.0 3=abort/1.0\n"
        "log tea-1: 0=c/1.0 1=commit/1.0",
    ),
    (
        "an abort took the first record, and the second was acknowledged and is not in the log",
        "torn-transaction",
        LATE_ABORT.replace("w commits 2", "w acked c tea-0@4\nw sends d to tea-0\nw commits 2") + "rest\n"
        "r reads tea-0: 5=d\nlog tea-0: 0=a/1.0 1=abort/1.0 2=b/1.0 3=abort/1.0 5=d/1.0 6=commit/1.0",
    ),
    (
        "the abort that took the first record came when the second was there",
        "torn-transaction",
        LATE_ABORT.replace("c to tea-0", "c to tea-1").replace(
            "w commits", "w acked c tea-1@0\nv sends d to tea-0\nw commits"
        )
        + "rest\nr reads tea-0: 3=d\nr reads tea-1: 0=c\n"
        "log tea-0: 0=a/1.0 1=abort/1.0 2=b/1.0 3=d/-1.-1 4=abort/1.0\nlog tea-1: 0=c/1.0 1=commit/1.0",
    ),
    ("the abort marker is missing", "G1a", A_LATE_PRODUCE + "log tea-0: 1=a/1.0 2=b/1.0 3=commit/1.0"),
    (
        "the abort marker is missing, and there is that of an earlier transaction",
        "G1a",
        A_LATE_PRODUCE.replace("w begin 1", "w begin 0\nw sends z to tea-0\nw aborts 0\nw ended 0 aborted\nw begin 1")
        .replace("1=a 2=b", "2=a 3=b")
        .replace("acked b tea-0@2", "acked b tea-0@3")
        + "log tea-0: 0=z/1.0 1=abort/1.0 2=a/1.0 3=b/1.0 4=commit/1.0",
    ),
    (
        "the record was acknowledged before its transaction was aborted",
        "G1a",
        A_LATE_PRODUCE.replace("w aborts 1", "w acked a tea-0@1\nw aborts 1")
        + "log tea-0: 0=abort/1.0 1=a/1.0 2=b/1.0 3=commit/1.0",
    ),
    (
        "the record came late, with version 2",
        "G1a",
        A_LATE_PRODUCE.replace("1 0 1", "1 0 2") + "log tea-0: 0=abort/1.0 1=a/1.0 2=b/1.0 3=commit/1.0",
    ),
    (
        "a group is ahead of a transaction that its own abort ended",
        "offsets-ahead",
        OFFSETS_OF_A_LATE_COMMIT.replace(" TRANSACTION_ABORTABLE", "") + AHEAD_AT_REST,
    ),
    (
        "a group is ahead, and no fault of the run made an EndTxn late",
        "offsets-ahead",
        OFFSETS_OF_A_LATE_COMMIT.replace(A_LONG_DELAY, "") + AHEAD_AT_REST,
    ),
    (
        "a group is ahead of a transaction that began too late for the request",
        "offsets-ahead",
        OFFSETS_OF_A_LATE_COMMIT.replace("w begin 2", "5s pass\nw begin 2") + AHEAD_AT_REST,
    ),
    (
        "a group is ahead, with version 2",
        "offsets-ahead",
        OFFSETS_OF_A_LATE_COMMIT.replace("1 0 1", "1 0 2") + AHEAD_AT_REST,
    ),
    (
        "the record at the offset was acknowledged, so its sequence number was not free",
        "inconsistent-offsets torn-transaction",
        A_REUSED_SEQUENCE.replace("w aborts 1", "w acked a tea-0@0\nw aborts 1"),
    ),
    (
        "the record at the offset is of another writer",
        "inconsistent-offsets torn-transaction",
        AN_UNANSWERED_ABORT + "v init u 2 0 1\n" + TAKEN_FOR_A_DUPLICATE.replace("w ", "v "),
    ),
    (
        "the record at the offset is of a later transaction",
        "inconsistent-offsets lost-write",
        (
            "w init t 1 0 1\nw begin 1\nw sends b to tea-0\nw acked b tea-0@0\nw commits 1\nw ended 1 committed\n"
            "w begin 2\nw sends a to tea-0\nw aborts 2\nw ended 2 aborted\nrest\nlog tea-0: 0=a/1.0 1=abort/1.0"
        ),
    ),
    (
        "the record at the offset is not in the log any more",
        "inconsistent-offsets torn-transaction",
        A_REUSED_SEQUENCE.replace(
            "w aborts 1", "u assign tea-0@0 read_uncommitted\nu reads tea-0: 0=a\nw aborts 1"
        ).replace("0=a/1.0 1=abort/1.0 2=commit/1.0", "1=abort/1.0 2=commit/1.0"),
    ),
    (
        "the acknowledged record is elsewhere in the log",
        "inconsistent-offsets",
        A_REUSED_SEQUENCE.replace("2=commit/1.0", "2=b/1.0 3=commit/1.0"),
    ),
    (
        "the records have epochs of their own, with version 2",
        "inconsistent-offsets torn-transaction",
        A_REUSED_SEQUENCE.replace("1 0 1", "1 0 2"),
    ),
]


@pytest.mark.parametrize(
    ("kind", "story"), [row[1:] for row in ACCUSED], ids=[f"{row[1]}: {row[0]}" for row in ACCUSED]
)
def test_a_story_is_accused_of_its_kind(kind: str, story: str) -> None:
    assert set(kinds_in(story)) == set(kind.split())


@pytest.mark.parametrize("story", [row[1] for row in NOT_ACCUSED], ids=[row[0] for row in NOT_ACCUSED])
def test_a_story_without_a_fault_is_not_accused(story: str) -> None:
    assert found_in(story) == []


@pytest.mark.parametrize(("kind", "story"), [row[1:] for row in NOT_EXCUSED], ids=[row[0] for row in NOT_EXCUSED])
def test_a_broker_is_not_excused_without_proof(kind: str, story: str) -> None:
    assert set(kinds_in(story)) == set(kind.split())


@pytest.mark.parametrize(
    "fault",
    [
        "error EndTxn NOT_COORDINATOR times=3 (1 time)",
        "drop EndTxn request times=3 (1 time)",
        "disconnect EndTxn request times=3 (1 time)",
        "duplicate EndTxn times=3 (1 time)",
        "delay EndTxn 800ms request times=3 (1 time)",
        "delay EndTxn 4s reply (1 time)",
        "delay Fetch 4s request (1 time)",
        "delay EndTxn",
        "paused w",
    ],
)
def test_a_fault_that_makes_no_end_txn_late_excuses_no_broker(fault: str) -> None:
    story = AFTER_A_SLOW_COMMIT.replace(A_LONG_DELAY, f"fault {fault}\n") + READ_BEFORE_ITS_COMMIT
    assert kinds_in(story) == ["precommitted-read"]


def test_a_commit_behind_a_last_stable_offset_that_is_stuck_is_not_lost_too() -> None:
    story = A_COMMIT + "w acked a tea-0@5\nrest\ntea-0 lso 5 hw 6\nr reads tea-0:\nr reads tea-1: 0=b"
    assert kinds_in(story) == ["stuck-LSO"]


def test_every_kind_has_a_story() -> None:
    of_stories = {kind for _, kinds, _ in ACCUSED for kind in kinds.split()}
    assert of_stories | {kind for kind, _, _ in OF_PIPELINES} == set(KINDS)
    assert len(CHECKERS) == len(set(CHECKERS))


@pytest.mark.parametrize("story", [row[2] for row in ACCUSED], ids=[row[0] for row in ACCUSED])
def test_every_anomaly_has_a_proof_and_a_sentence(story: str) -> None:
    for anomaly in found_in(story):
        assert anomaly.proof, anomaly
        assert len(anomaly.what) > 10
