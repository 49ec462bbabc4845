"""What can be clicked in the playground. The page draws this table, `session` does it, and `recipes` are made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.diagnose.errors.kafka_codes import KAFKA_CODES

A, B = PRODUCERS = ("A", "B")
# The requests of a transaction. An error that one of them can answer with is one that a transaction can meet.
TRANSACTION_APIS = (
    "FindCoordinator",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "Produce",
    "EndTxn",
)


class Click(NamedTuple):
    button: str
    option: str = ""
    producer: str = A


@dataclass(frozen=True, slots=True)
class Button:
    name: str
    label: str
    about: str
    # Other ways to do it, mostly mistakes; by their names, with what the page says.
    options: Mapping[str, str] = field(default_factory=dict)
    has_plain: bool = True  # It can be clicked without an option.


OF_PRODUCER = (
    Button(
        "register",
        "Register",
        "InitProducerId: the coordinator gives the producer its id and epoch, and fences the one before.",
        {
            "timeout-too-long": "with a timeout of one day",
            "empty-id": "with an empty transactional id",
            "no-id": "without a transactional id",
        },
    ),
    Button("begin", "Begin", "Begins a transaction. A client sends nothing for this."),
    Button(
        "produce",
        "Produce",
        "Produce: one record to orders-0. An older client first sends AddPartitionsToTxn.",
        {
            "damaged": "with a wrong checksum",
            "unknown-partition": "to a partition that does not exist",
            "unknown-topic-id": "to a topic id that does not exist",
            "internal-topic": "to __transaction_state",
            "too-large": "with a record of 1.1 MB",
            "wrong-acks": "with acks=5",
            "year-2100": "with a timestamp in the year 2100",
            "skip-sequence": "after a batch that was lost",
            "control-batch": "a marker, which only brokers write",
            "unknown-codec": "with a compression that does not exist",
            "without-id": "without the transactional id",
            "not-added": "without AddPartitionsToTxn (older client)",
        },
    ),
    Button(
        "add-partitions",
        "Add partitions",
        "AddPartitionsToTxn, which only older clients send: newer ones add a partition with their first Produce.",
        {"one-unknown": "one that exists, and one that does not"},
    ),
    Button(
        "add-offsets",
        "Add offsets",
        "TxnOffsetCommit: the offset of a consumer group, as part of the transaction. An older client first sends "
        "AddOffsetsToTxn.",
        {
            "long-metadata": "with metadata of 5,000 characters",
            "no-group": "with an empty group id",
            "unknown-member": "as a member that the group does not know",
            "old-generation": "as a member of a generation that is over",
            "taken-instance": "with the group.instance.id of another member",
        },
    ),
    Button("commit", "Commit", "EndTxn: the coordinator decides, writes markers, and completes."),
    Button("abort", "Abort", "EndTxn: as commit, but readers will skip the records."),
    Button(
        "client",
        "Change the client",
        "Clients since 2024 speak transaction.version 2 (TV2, KIP-890): each transaction has an epoch of its own.",
        {"older": "an older client (TV1)", "newer": "a newer client (TV2)"},
        has_plain=False,
    ),
)

_INJECTED = {
    f"{api} {entry.name}": f"{api} answers {entry.name}"
    for entry in KAFKA_CODES
    for api in entry.apis
    if api in TRANSACTION_APIS and entry.code
}

OF_WORLD = (
    Button("kill", "Kill the broker", "kill -9 of both nodes, which are one process."),
    Button("start", "Start the broker", "Starts it on the same files: it finishes what was decided."),
    Button(
        "delay-end", "Delay the next EndTxn", "The next EndTxn reaches the coordinator after 3 s; the client waits 2 s."
    ),
    Button(
        "lose-answer",
        "Lose the next answer",
        "The request is carried out, and the connection ends before the answer.",
        {"Produce": "of Produce", "EndTxn": "of EndTxn", "TxnOffsetCommit": "of TxnOffsetCommit"},
        has_plain=False,
    ),
    Button(
        "inject",
        "Answer with an error",
        "The broker refuses the next request with this error, whatever the request is.",
        _INJECTED,
        has_plain=False,
    ),
    Button(
        "clock",
        "Move the clock",
        "Moves the clock of the broker forward; what is due happens at once.",
        {"timeout": "past the timeout of the transaction", "expiration": "past the expiration of the id (7 days)"},
        has_plain=False,
    ),
    Button("cut", "Cut the network between the nodes", "The coordinator cannot write markers on the other node."),
    Button("mend", "Mend the network", "The nodes reach each other again."),
    Button("move-leader", "Move the leader of orders-0", "To the other node. Clients find out by an error."),
    Button("move-coordinator", "Move the coordinator", "To the other node. Clients find out by an error."),
    Button("join", "A consumer joins the group", "JoinGroup and SyncGroup, with group.instance.id=reader-1."),
    Button(
        "forbid",
        "Forbid",
        "An ACL that denies the user an operation.",
        {
            "topic": "to write to the topic",
            "group": "to use the group",
            "transactional-id": "to use the transactional id",
            "cluster": "to write at all",
        },
        has_plain=False,
    ),
    Button("allow", "Allow everything", "Removes all ACLs."),
    Button("reset", "Start over", "A new transactional id, no faults, no ACLs, both nodes connected."),
)
BUTTONS = {button.name: button for button in (*OF_PRODUCER, *OF_WORLD)}


def says(click: Click) -> str:
    """The click in words, as the page lists it in a recipe."""
    button = BUTTONS[click.button]
    is_of_producer = button in OF_PRODUCER
    label = f"{button.label} ({button.options[click.option]})" if click.option else button.label
    return f"{click.producer}: {label}" if is_of_producer else label


def check(click: Click) -> str | None:
    """What is wrong with a click that did not come from the page."""
    button = BUTTONS.get(click.button)
    if button is None:
        return f"there is no button {click.button!r}"
    if click.option and click.option not in button.options:
        return f"{click.button} has no option {click.option!r}"
    if not click.option and not button.has_plain:
        return f"{click.button} needs an option: {', '.join(list(button.options)[:5])}"
    if click.producer not in PRODUCERS:
        return f"there is no producer {click.producer!r}"
    return None
