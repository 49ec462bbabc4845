"""Apache Kafka's own tools: on the files of a broker that was loaded with transactions, and on the broker itself."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from fencepost.machines.txn.records import partition_for
from fencepost.protocol.batch import decode_marker
from fencepost.protocol.records import iter_batches
from fencepost.testing import Broker
from tests.engines.apache_kafka import run_tool
from tests.engines.java import why_no_java
from tests.readers.reading import TIMEOUT_S, read_all

pytestmark = pytest.mark.java

TXN_ID = "loader"
GROUP = "loaders"
ROUNDS = 90
END_OFFSET = 4 * ROUNDS + 1  # Three records and a marker each, and the one that is left open.
OPEN_MS = 600_000
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Transactions with data and offsets, every third aborted; one is left open by `left-open`."""
    if reason := why_no_java():
        pytest.skip(reason)
    data = tmp_path_factory.mktemp("tools") / "data"
    settings = {"log.segment.bytes": "8192", "log.index.interval.bytes": "200"}
    with Broker(data=data, settings=settings) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        consumer = Consumer(servers | {"group.id": GROUP})
        producer = Producer(servers | {"transactional.id": TXN_ID, "compression.type": "lz4"})
        producer.init_transactions(TIMEOUT_S)
        for number in range(ROUNDS):
            producer.begin_transaction()
            for place in range(3):
                producer.produce("orders", value_of(number, place), key=str(number))
            assert producer.flush(TIMEOUT_S) == 0
            position = [TopicPartition("orders", 0, number)]
            producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), TIMEOUT_S)
            (producer.commit_transaction if is_committed(number) else producer.abort_transaction)(TIMEOUT_S)
        consumer.close()
        left_open = Producer(servers | {"transactional.id": "left-open", "transaction.timeout.ms": OPEN_MS})
        left_open.init_transactions(TIMEOUT_S)
        left_open.begin_transaction()
        left_open.produce("orders", "open")
        assert left_open.flush(TIMEOUT_S) == 0
        yield broker


def value_of(number: int, place: int) -> str:
    return f"order {number}/{place} " + "x" * 100


def is_committed(number: int) -> bool:
    return number % 3 != 0


@pytest.fixture
def tool(broker: Broker) -> Tool:
    """Run a tool against the broker; where it fails, the broker's own words may say why."""

    def run(name: str, *arguments: str) -> str:
        try:
            return run_tool(name, "--bootstrap-server", broker.bootstrap_servers, *arguments)
        except BaseException:
            print(broker.log)
            raise

    return run


@pytest.fixture(scope="module")
def files(broker: Broker) -> Path:
    """The folder after a clean stop; the broker runs again."""
    broker.restart()
    assert broker.data is not None
    return broker.data


def dump(files: Path, log: str, suffix: str, *options: str) -> str:
    """kafka-dump-log on all files of a log with this suffix."""
    found = sorted(str(path) for path in (files / log).glob(f"*.{suffix}") if path.stat().st_size)
    assert found, f"{log} has no .{suffix}"
    return run_tool("kafka-dump-log", "--files", ",".join(found), *options)


def rows(table: str) -> list[dict[str, str]]:
    """The lines of a table with a header; columns are separated by tabs, or by spaces."""
    lines = [line for line in table.splitlines() if line.strip()]
    separator = "\t" if "\t" in lines[0] else None
    split = [[cell.strip() for cell in line.strip().split(separator)] for line in lines]
    return [dict(zip(split[0], line, strict=True)) for line in split[1:]]


# --- files --------------------------------------------------------------------------------------------------


def test_dump_log_finds_every_record_in_valid_batches(files: Path) -> None:
    text = dump(files, "orders-0", "log", "--print-data-log", "--deep-iteration")
    batches = re.findall(r"^baseOffset: (\d+) lastOffset: (\d+).* isvalid: (\w+)$", text, re.MULTILINE)
    assert {valid for _, _, valid in batches} == {"true"}
    ends = [int(last) for _, last, _ in batches]
    assert [int(base) for base, _, _ in batches] == [0, *(end + 1 for end in ends[:-1])]
    payloads = re.findall(r"payload: (.*)$", text, re.MULTILINE)
    assert payloads == [value_of(number, place) for number in range(ROUNDS) for place in range(3)] + ["open"]
    markers = re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: 0", text)
    assert markers == ["COMMIT" if is_committed(number) else "ABORT" for number in range(ROUNDS)]
    assert text.count("compresscodec: lz4") == ROUNDS
    assert text.count("Dumping ") > 2, "several segments"


def test_dump_log_believes_the_offset_index_and_the_time_index(files: Path) -> None:
    for suffix in ("index", "timeindex"):
        text = dump(files, "orders-0", suffix)
        assert len(re.findall(r"^(?:timestamp: \d+ )?offset: \d+", text, re.MULTILINE)) > 20
        assert not re.search("mismatch|not found|out of order", text, re.IGNORECASE), text
        checked = dump(files, "orders-0", suffix, "--index-sanity-check")
        assert checked.count("passed sanity check") == checked.count("Dumping ") > 2


def test_dump_log_finds_the_aborted_transactions(files: Path) -> None:
    text = dump(files, "orders-0", "txnindex")
    entries = re.findall(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", text)
    batches = [pair for path in sorted((files / "orders-0").glob("*.log")) for pair in iter_batches(path.read_bytes())]
    markers = [decode_marker(batch) for header, batch in batches if header.is_control]
    aborts = [marker for marker in markers if marker is not None and not marker.commit]
    assert [int(entry[2]) for entry in entries] == [marker.offset for marker in aborts]
    assert len(entries) == ROUNDS // 3
    for producer_id, first, last, stable in entries:
        assert int(producer_id) == aborts[0].producer_id
        assert (int(first), int(stable)) == (int(last) - 3, int(last) + 1)


def test_dump_log_finds_the_producers_in_the_snapshot(files: Path) -> None:
    newest = dump(files, "orders-0", "snapshot").split("Dumping ")[-1]
    states = re.findall(r"producerId: (\d+) .*currentTxnFirstOffset: (\S+) .*lastSequence: (\d+)", newest)
    # The last entry of a producer counts; those before it are earlier batches.
    by_producer = {producer_id: (first, int(last)) for producer_id, first, last in states}
    assert list(by_producer.values()) == [
        ("OptionalLong.empty", 3 * ROUNDS - 1),
        (f"OptionalLong[{4 * ROUNDS}]", 0),
    ]


def test_dump_log_decodes_the_transaction_log(files: Path) -> None:
    log = f"__transaction_state-{partition_for(TXN_ID, 50)}"
    text = dump(files, log, "log", "--transaction-log-decoder")
    records = [json.loads(found) for found in re.findall(r"payload: (\{.*\})$", text, re.MULTILINE)]
    states = [record["data"]["transactionStatus"] for record in records]
    empty, ongoing, prepare_commit, prepare_abort, complete_commit, complete_abort = range(6)
    wanted = [empty]
    for number in range(ROUNDS):
        decided = [prepare_commit, complete_commit] if is_committed(number) else [prepare_abort, complete_abort]
        wanted += [ongoing, ongoing, *decided]  # The topic, then the group.
    assert states == wanted
    prepared = records[states.index(prepare_commit)]["data"]["transactionPartitions"]
    assert {partition["topic"] for partition in prepared} == {"orders", "__consumer_offsets"}
    keys = set(re.findall(r'"transactionalId":"([^"]+)"', text))
    assert keys == {TXN_ID}


def test_dump_log_decodes_the_group_s_offsets(files: Path) -> None:
    log = f"__consumer_offsets-{partition_for(GROUP, 50)}"
    text = dump(files, log, "log", "--offsets-decoder")
    records = [json.loads(found) for found in re.findall(r"payload: (\{.*\})$", text, re.MULTILINE)]
    assert [record["data"]["offset"] for record in records] == list(range(ROUNDS))
    keys = [json.loads(found)["data"] for found in re.findall(r"key: (\{.*\}) payload", text)]
    assert keys == [{"group": GROUP, "topic": "orders", "partition": 0}] * ROUNDS
    assert text.count("endTxnMarker: COMMIT") == sum(is_committed(number) for number in range(ROUNDS))


# --- the broker ---------------------------------------------------------------------------------------------


def test_kafka_transactions_lists_and_describes(tool: Tool) -> None:
    listed = {row["TransactionalId"]: row for row in rows(tool("kafka-transactions", "list"))}
    assert listed[TXN_ID]["TransactionState"] == "CompleteCommit"
    assert listed["left-open"]["TransactionState"] == "Ongoing"
    matching = rows(tool("kafka-transactions", "list", "--transactional-id-pattern", "left-.*"))
    assert [row["TransactionalId"] for row in matching] == ["left-open"]
    assert tool("kafka-transactions", "list", "--duration-filter", "3600000").split()[4:] == []
    [described] = rows(tool("kafka-transactions", "describe", "--transactional-id", "left-open"))
    assert described["TransactionState"] == "Ongoing"
    assert described["TopicPartitions"] == "orders-0"
    assert described["TransactionTimeoutMs"] == str(OPEN_MS)
    arguments = ["--topic", "orders", "--partition", "0"]
    producers = {row["ProducerId"]: row for row in rows(tool("kafka-transactions", "describe-producers", *arguments))}
    assert producers[listed[TXN_ID]["ProducerId"]]["CurrentTransactionStartOffset"] == "None"
    assert producers[described["ProducerId"]]["CurrentTransactionStartOffset"] == str(4 * ROUNDS)


def test_kafka_transactions_aborts_an_open_transaction(broker: Broker, tool: Tool) -> None:
    tool("kafka-topics", "--create", "--topic", "to-abort", "--partitions", "1")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "hanging"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("to-abort", "half an order")
    assert producer.flush(TIMEOUT_S) == 0
    tool("kafka-transactions", "abort", "--topic", "to-abort", "--partition", "0", "--start-offset", "0")
    assert read_all(broker.bootstrap_servers, ["to-abort"]) == [], "and the LSO is free"


def test_kafka_topics_creates_describes_grows_and_deletes(tool: Tool) -> None:
    tool("kafka-topics", "--create", "--topic", "made", "--partitions", "2", "--config", "segment.bytes=1048576")
    listed = tool("kafka-topics", "--list").split()
    assert {"made", "orders", "__transaction_state", "__consumer_offsets"} <= set(listed)
    tool("kafka-topics", "--alter", "--topic", "made", "--partitions", "3")
    described = tool("kafka-topics", "--describe", "--topic", "made")
    assert "PartitionCount: 3" in described
    assert "segment.bytes=1048576" in described
    assert described.count("Leader: 1") == 3
    tool("kafka-topics", "--delete", "--topic", "made")
    assert "made" not in tool("kafka-topics", "--list").split()


@pytest.mark.parametrize(
    ("topic", "key", "formatter"),
    [
        ("__transaction_state", TXN_ID, "TransactionLogMessageFormatter"),
        ("__consumer_offsets", GROUP, "OffsetsMessageFormatter"),
    ],
)
def test_a_plain_consumer_reads_the_internal_topics(topic: str, key: str, formatter: str, tool: Tool) -> None:
    text = tool(
        "kafka-console-consumer",
        *("--topic", topic, "--partition", str(partition_for(key, 50)), "--offset", "earliest"),
        *("--max-messages", "50", "--formatter", f"org.apache.kafka.tools.consumer.{formatter}"),
    )
    records = list(json_values(text))
    assert len(records) == 50
    name = "transactionalId" if topic == "__transaction_state" else "group"
    assert {record["key"]["data"][name] for record in records} == {key}
    field = "producerId" if topic == "__transaction_state" else "offset"
    assert all(field in record["value"]["data"] for record in records)


def json_values(text: str) -> Iterator[dict[str, dict[str, dict[str, str]]]]:
    """The formatters put nothing between two records."""
    decoder, pos = json.JSONDecoder(), 0
    while pos < len(text.rstrip()):
        value, pos = decoder.raw_decode(text, pos)
        yield value
        while pos < len(text) and text[pos].isspace():
            pos += 1


def test_the_console_consumer_reads_committed_data_only(tool: Tool) -> None:
    committed = [value_of(number, place) for number in range(ROUNDS) if is_committed(number) for place in range(3)]
    options = ["--topic", "orders", "--from-beginning", "--max-messages", str(len(committed))]
    text = tool("kafka-console-consumer", *options, "--isolation-level", "read_committed")
    assert text.splitlines() == committed


def test_kafka_get_offsets_and_features_and_versions_answer(tool: Tool) -> None:
    assert tool("kafka-get-offsets", "--topic", "orders").strip() == f"orders:0:{END_OFFSET}"
    assert re.search(r"transaction\.version.*FinalizedVersionLevel: 2", tool("kafka-features", "describe"))
    assert re.search(r"EndTxn\(26\): 0 to 5", tool("kafka-broker-api-versions"))


def test_the_java_producer_writes_transactions_with_its_own_load_tool(broker: Broker) -> None:
    text = run_tool(
        "kafka-producer-perf-test",
        *("--topic", "perf", "--num-records", "2000", "--record-size", "100", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap_servers}"),
        *("--transactional-id", "perf", "--transaction-duration-ms", "20"),
    )
    assert "2000 records sent" in text
    assert len(read_all(broker.bootstrap_servers, ["perf"])) == 2000
