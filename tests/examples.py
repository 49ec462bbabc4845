"""The examples of the reference pages, `docs/reference/examples/*.txt`: what a command prints on a broker like this.

    python -m tests.examples        writes them anew, after a command has changed what it prints

The story in the guide to monitoring, a hanging transaction from the first alarm to the cure, is written with them.

A file is a transcript: lines with `$ ` are called, the others are what is seen then; `^C` ends what does not end by
itself. A file is named as its page, `txn-lso.txt` for `fencepost txn lso`. They are run in the order of `ORDER`, since
some of them end what others look at.
"""

from __future__ import annotations

import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.client.admin.offsets import commit_offsets
from fencepost.client.client import GROUP, TRANSACTION, KafkaClient
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import (
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from fencepost.testing import Broker
from tests.command_line import run_fencepost, start_fencepost
from tests.readers.reading import TIMEOUT_S, connect

DOCS = Path(__file__).resolve().parents[1] / "docs"
FOLDER = DOCS / "reference" / "examples"
GUIDE = DOCS / "guides" / "monitoring.md"
STORY = [
    "fencepost txn lso --max-age 60s",
    "fencepost txn explain audit-1",
    "fencepost txn abort --topic audit --partition 0 --producer-id 0 --yes",
    "fencepost txn lso --max-age 60s",
    "fencepost group list",
]
STORY_COLUMNS = 100
# Two hours and five minutes ago, for almost a minute: a longer or shorter text would make other columns fit.
HUNG_MS = 7_505_000
ORDER = {
    "broker": ["fencepost broker --listen 127.0.0.1:9092 --memory"],
    "exporter": ["fencepost exporter --bootstrap localhost:9092"],
    "error": ["fencepost error 47"],
    "topic-create": ["fencepost topic create refunds --partitions 2"],
    "topic-list": ["fencepost topic list"],
    "topic-describe": ["fencepost topic describe refunds"],
    "topic-delete": ["fencepost topic delete refunds --yes"],
    "tail": ["fencepost tail orders:0"],
    "doctor": ["fencepost doctor --max-age 1ms"],
    "spark-check": ["fencepost spark check --id refunds-1 --topic orders --no-spark"],
    "txn-list": ["fencepost txn list", "fencepost txn list --state Ongoing --longer-than 1ms"],
    "group-list": ["fencepost group list"],
    "group-describe": ["fencepost group describe billing"],
    "txn-lso": ["fencepost txn lso"],
    "txn-explain": ["fencepost txn explain orders-sink-3"],
    "txn-describe": ["fencepost txn describe orders-sink-3"],
    "txn-history": ["fencepost txn history orders-sink-2", "fencepost txn history orders-sink-3 --rpc"],
    "txn-producers": ["fencepost txn producers orders:0"],
    "txn-fence": ["fencepost txn fence orders-sink-3 --yes"],
    "txn-hanging": ["fencepost txn hanging"],
    "txn-abort": ["fencepost txn abort --topic audit --partition 0 --producer-id 3 --yes"],
}
# Without verification (KIP-890), a write of the older protocol makes a transaction that no coordinator knows.
SETTINGS = {"transaction.partition.verification.enable": "false"}
BEFORE_IMPLICIT_ADD = 11
_STORY = re.compile(r"(<!-- transcript: hanging -->\n+```console\n)(.*?)(```)", re.DOTALL)
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z")
_DURATION = re.compile(r"\b\d+(\.\d+)? (ms|s|m|h|d)\b( \d+ (s|m|h)\b)?")
_SHARE = re.compile(r"\b\d+ %")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_TOPIC_ID = re.compile(r"\btopic id [\w-]{22}\b")


class Identity(NamedTuple):
    producer_id: int
    producer_epoch: int


@contextmanager
def example_broker() -> Iterator[Broker]:
    """Three sinks that write orders and payments, of which the third is stuck, an audit log that hangs, two readers."""
    with Broker(settings=SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topics = [NewTopic("orders", 2, 1), NewTopic("payments", 1, 1), NewTopic("audit", 1, 1)]
        for made in admin.create_topics(topics).values():
            made.result(TIMEOUT_S)
        sinks = [_sink(broker, f"orders-sink-{number}") for number in (1, 2, 3)]
        for sink in sinks:
            _write(sink)
        sinks[0].commit_transaction(TIMEOUT_S)
        sinks[1].commit_transaction(TIMEOUT_S)
        _write(sinks[1])
        sinks[1].abort_transaction(TIMEOUT_S)
        hang(broker.bootstrap_servers, "audit", "audit-1")
        with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
            commit_offsets(client, "billing", {("orders", 0): 2, ("orders", 1): 0})
            commit_offsets(client, "archive", {("audit", 0): 0})
        yield broker


@contextmanager
def hanging_broker() -> Iterator[Broker]:
    """An audit log whose producer left a transaction hanging two hours ago, and a group that waits for it."""
    with Broker(settings=SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("audit", 1, 1)])["audit"].result(TIMEOUT_S)
        hang(broker.bootstrap_servers, "audit", "audit-1", HUNG_MS)
        plain = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        plain.produce("audit", "waits behind it")
        assert plain.flush(TIMEOUT_S) == 0
        with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
            commit_offsets(client, "archive", {("audit", 0): 0})
        yield broker


def _sink(broker: Broker, transactional_id: str) -> Producer:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id}
    producer = Producer(settings | {"client.id": "shop", "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    return producer


def _write(sink: Producer) -> None:
    sink.begin_transaction()
    for topic, partition in (("orders", 0), ("orders", 1), ("payments", 0)):
        sink.produce(topic, "one", partition=partition)
        # One after the other, so that the records of the transaction's log are the same each time.
        assert sink.flush(TIMEOUT_S) == 0


def hang(bootstrap_servers: str, topic: str, transactional_id: str, ago_ms: int = 0) -> tuple[int, int]:
    """Leave a transaction open on partition 0 that its coordinator has never heard of: its producer id and its offset.

    The broker must not verify (`transaction.partition.verification.enable=false`).
    """
    with connect(bootstrap_servers) as client:
        deadline = time.monotonic() + TIMEOUT_S
        init = InitProducerIdRequest(transactional_id, 60_000, -1, -1)
        # This creates `__transaction_state` on a fresh Apache Kafka.
        client.call(FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id]), version=4)
        while (who := client.call(init, version=4)).error_code:
            assert who.error_code in errors.RETRIABLE, f"InitProducerId: {errors.name_of(who.error_code)}"
            assert time.monotonic() < deadline
            time.sleep(0.05)
    identity = Identity(who.producer_id, who.producer_epoch)
    return identity.producer_id, write_unknown(bootstrap_servers, topic, transactional_id, identity, ago_ms)


def write_unknown(
    bootstrap_servers: str, topic: str, transactional_id: str, producer: Identity, ago_ms: int = 0
) -> int:
    """Write one record to partition 0, in a transaction that its coordinator does not know: its offset."""
    deadline = time.monotonic() + TIMEOUT_S
    with connect(bootstrap_servers) as client:
        written_ms = time.time_ns() // 1_000_000 - ago_ms
        batch = encode_batch([(b"k", b"never ended")], written_ms, *producer, 0, True)
        data = [ProduceRequest.PartitionProduceData(0, batch)]
        topics = [ProduceRequest.TopicProduceData(topic, partition_data=data)]
        produce = ProduceRequest(transactional_id, -1, 30_000, topics)
        while True:
            [topic_reply] = client.call(produce, version=BEFORE_IMPLICIT_ADD).responses
            [written] = topic_reply.partition_responses
            if written.error_code == errors.NONE:
                return int(written.base_offset)
            # Apache Kafka may not have made its leader yet.
            assert written.error_code in errors.RETRIABLE, errors.name_of(written.error_code)
            assert time.monotonic() < deadline
            time.sleep(0.05)


def hang_offset(bootstrap_servers: str, group_id: str, topic: str, transactional_id: str) -> int:
    """Leave an offset of a group in a transaction that its coordinator has never heard of: the producer id."""
    with connect(bootstrap_servers) as client:
        init = InitProducerIdRequest(transactional_id, 60_000, -1, -1)
        client.call(FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id]), version=4)
        client.call(FindCoordinatorRequest(key_type=GROUP, coordinator_keys=[group_id]), version=4)
        who = _until_it_works(lambda: client.call(init, version=4), lambda reply: int(reply.error_code))
        offset = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, 1)
        topics = [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(topic, [offset])]
        commit = TxnOffsetCommitRequest(transactional_id, group_id, who.producer_id, who.producer_epoch, topics=topics)
        _until_it_works(
            lambda: client.call(commit, version=3), lambda reply: int(reply.topics[0].partitions[0].error_code)
        )
        return int(who.producer_id)


def _until_it_works(call: Callable[[], Any], error_of: Callable[[Any], int]) -> Any:
    """Apache Kafka may not have made its coordinators yet."""
    deadline = time.monotonic() + TIMEOUT_S
    while code := error_of(reply := call()):
        assert code in errors.RETRIABLE, errors.name_of(code)
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return reply


def transcript(commands: Sequence[str], bootstrap_servers: str, columns: int | None = None) -> str:
    """Call some commands and write down what is seen."""
    lines = []
    for command in commands:
        lines += [f"$ {command}", *_seen(shlex.split(command)[1:], bootstrap_servers, columns)]
    return "\n".join(lines) + "\n"


def _seen(arguments: list[str], bootstrap_servers: str, columns: int | None) -> list[str]:
    if arguments[0] == "broker":
        # The port that the page names may be taken.
        with start_fencepost(*[a.replace(":9092", ":0") for a in arguments]) as process:
            assert process.stdout is not None
            ready = process.stdout.readline().strip()
            process.send_signal(signal.SIGINT)
            assert process.wait(TIMEOUT_S) == 0
        return [re.sub(r":\d+", ":9092", ready), "^C"]
    if arguments[0] == "exporter":
        with start_fencepost("exporter", "--bootstrap", bootstrap_servers, "--listen", "127.0.0.1:0") as process:
            assert process.stdout is not None
            ready = process.stdout.readline().strip()
            process.send_signal(signal.SIGINT)
            assert process.wait(TIMEOUT_S) == 0
        return [re.sub(r":\d+/", ":9405/", ready), "^C"]
    done = run_fencepost(*arguments, columns=columns, bootstrap_servers=bootstrap_servers)
    return (done.stdout + done.stderr).rstrip("\n").split("\n")


def comparable(text: str) -> str:
    """What a transcript must have in common with another run: all but times, ports, and where lines are broken."""
    text = " ".join(text.split())
    text = _TOPIC_ID.sub("TOPIC ID", text)
    for pattern, name in ((_TIME, "TIME"), (_DURATION, "DURATION"), (_SHARE, "SHARE"), (_ADDRESS, "ADDRESS")):
        text = pattern.sub(name, text)
    return text


def story_in_guide() -> str:
    return _STORY.search(GUIDE.read_text())[2]  # type: ignore[index]  # A guide without it is a failure.


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with example_broker() as broker:
        for name, commands in ORDER.items():
            (FOLDER / f"{name}.txt").write_text(transcript(commands, broker.bootstrap_servers))
            print(f"wrote {name}.txt")
    with hanging_broker() as broker:
        story = transcript(STORY, broker.bootstrap_servers, STORY_COLUMNS)
    GUIDE.write_text(_STORY.sub(lambda found: f"{found[1]}{story}{found[3]}", GUIDE.read_text()))
    print("wrote the story in monitoring.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
