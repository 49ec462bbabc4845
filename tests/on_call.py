"""The stories in the guide for the engineer on call, `docs/guides/on-call.md`: what happens, and what the commands say.

    python -m tests.on_call        writes the transcripts anew, on Apache Kafka

A Fencepost broker says the same, and a little more: `ONLY_FENCEPOST`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.admin.partitions import READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from fencepost.client.client import KafkaClient
from tests.examples import DOCS, comparable, transcript
from tests.readers.reading import TIMEOUT_S
from tests.txn_tools import cluster, create_topic, producer_of

GUIDE = DOCS / "guides" / "on-call.md"
_MEMBER = re.compile(r"\bbilling-[0-9a-f-]{36}")
TIMEOUT_MS = 900_000
# What dies in the middle of a transaction: it says so when its record is in the log, and waits for its end.
DYING = f"""
import sys, time
from confluent_kafka import Producer
servers, transactional_id, topic, partition = sys.argv[1:]
settings = {{"transactional.id": transactional_id, "transaction.timeout.ms": {TIMEOUT_MS}, "client.id": "checkout"}}
producer = Producer(settings | {{"bootstrap.servers": servers}})
producer.init_transactions({TIMEOUT_S})
producer.begin_transaction()
producer.produce(topic, "paid", partition=int(partition))
assert producer.flush({TIMEOUT_S}) == 0
print("written", flush=True)
sys.stdin.read()
"""


class Story(NamedTuple):
    # Gives what happens before the last command.
    happens: Callable[[str], AbstractContextManager[Callable[[], None]]]
    commands: Sequence[str]


@contextmanager
def a_producer_dies(servers: str) -> Iterator[Callable[[], None]]:
    """Two producers write payments; one of them is killed in the middle of a transaction, the other one goes on."""
    create_topic(servers, "payments", 2)
    alive = producer_of(servers, "checkout-1", client_id="checkout")
    commit_some(alive, "payments", 3)
    arguments = [sys.executable, "-c", DYING, servers, "checkout-2", "payments", "0"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as dying:
        assert dying.stdout is not None
        assert dying.stdout.readline() == "written\n"
        dying.kill()
    commit_some(alive, "payments", 20)
    await_ends(servers, "payments", [(4, 26), (25, 25)])
    with reader(servers, "ledger", "payments", {0: 4, 1: 25}):
        yield lambda: None


@contextmanager
def a_producer_is_slow(servers: str) -> Iterator[Callable[[], None]]:
    """An export that takes long, and is at work; what others write to its partition meanwhile cannot be read either."""
    create_topic(servers, "invoices", 1)
    shop = producer_of(servers, "shop-1", client_id="shop")
    commit_some(shop, "invoices", 40, partitions=1)
    export = producer_of(servers, "nightly-export", TIMEOUT_MS, client_id="export")
    export.begin_transaction()
    write_some(export, "invoices", 300)
    commit_some(shop, "invoices", 100, partitions=1)
    write_some(export, "invoices", 100)
    await_ends(servers, "invoices", [(41, 542)])
    with reader(servers, "billing", "invoices", {0: 38}):
        yield lambda: write_some(export, "invoices", 50)
    export.commit_transaction(TIMEOUT_S)


def write_some(producer: Producer, topic: str, count: int, partitions: int = 1) -> None:
    for partition in range(partitions):
        for number in range(count):
            producer.produce(topic, f"{number}", partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def commit_some(producer: Producer, topic: str, count: int, partitions: int = 2) -> None:
    producer.begin_transaction()
    write_some(producer, topic, count, partitions)
    producer.commit_transaction(TIMEOUT_S)


def await_ends(servers: str, topic: str, expected: list[tuple[int, int]]) -> None:
    """Until the last stable offset and the high watermark of each partition are as expected.

    Apache Kafka answers EndTxn before the markers are written.
    """
    where = [NamedPartition(topic, partition) for partition in range(len(expected))]
    deadline = time.monotonic() + TIMEOUT_S
    with KafkaClient({"bootstrap.servers": servers}) as client:
        while True:
            stable, high = (list_offsets(client, where, level).found for level in (READ_COMMITTED, READ_UNCOMMITTED))
            if (ends := [(stable.get(w), high.get(w)) for w in where]) == expected:
                return
            assert time.monotonic() < deadline, f"ends are {ends}, not {expected}"
            time.sleep(0.05)


@contextmanager
def reader(servers: str, group_id: str, topic: str, committed: dict[int, int]) -> Iterator[None]:
    """A member of a group that reads what it may, and has committed some offsets."""
    settings = {"bootstrap.servers": servers, "group.id": group_id, "client.id": group_id, "log_level": 0}
    settings |= {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    try:
        consumer.subscribe([topic])
        while (seen := consumer.poll(TIMEOUT_S)) is not None and seen.error():
            pass
        assert seen is not None, "nothing to read"
        consumer.commit(
            offsets=[TopicPartition(topic, partition, offset) for partition, offset in committed.items()],
            asynchronous=False,
        )
        yield
    finally:
        consumer.close()


STORIES = {
    "a dead producer": Story(
        a_producer_dies,
        (
            "fencepost doctor --max-age 1ms",
            "fencepost txn lso",
            "fencepost txn explain checkout-2",
            "fencepost txn fence checkout-2 --yes",
            "fencepost txn lso",
        ),
    ),
    "a slow producer": Story(
        a_producer_is_slow,
        ("fencepost group list", "fencepost group describe billing", "fencepost txn explain nightly-export"),
    ),
}
# What a Fencepost broker says, and what Apache Kafka says instead: it does not remember requests.
ONLY_FENCEPOST = (
    (
        r" The last request for it was Produce, DURATION ago from client `\w+` at ADDRESS, and .*? without an error\.",
        "",
    ),
    (r"\bcheckout at 127\.0\.0\.1", "-"),
    (r"A Fencepost broker keeps one copy of everything\.", "The cluster has 1 broker."),
)


def tell(name: str, engine: str) -> str:
    """What the commands of a story print on `apache` or `fencepost`."""
    story = STORIES[name]
    with cluster(engine, {}) as servers, story.happens(servers) as go_on:
        before = transcript(story.commands[:-1], servers)
        go_on()
        return before + transcript(story.commands[-1:], servers)


def in_guide(name: str) -> str:
    transcript = re.compile(rf"<!-- transcript: {name} -->\n+```console\n(.*?)```", re.DOTALL)
    return transcript.search(GUIDE.read_text())[1]  # type: ignore[index]  # A guide without it is a failure.


def said(text: str) -> str:
    """What a transcript has in common with another run, on either broker."""
    text = _MEMBER.sub("MEMBER", comparable(text))
    for only, instead in ONLY_FENCEPOST:
        text = re.sub(only, instead, text)
    return text


def main() -> None:
    for name in STORIES:
        before, _, after = GUIDE.read_text().partition(in_guide(name))
        GUIDE.write_text(before + tell(name, "apache") + after)
        print(f"wrote {name}")


if __name__ == "__main__":
    main()
