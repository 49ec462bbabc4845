"""`fencepost tail` on Fencepost and on Apache Kafka: every record with the outcome that readers see."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from fencepost.cli.groups import ReaderGone
from fencepost.client.client import KafkaClient
from fencepost.client.fetching import FetchedPartition, TopicGone, fetch_partitions
from fencepost.diagnose.collect.reading import Start, StartKind
from fencepost.diagnose.collect.tail import TopicTail
from fencepost.diagnose.tail.documents import EndedOffsets, ReadMarker, ReadRecord, Remark, TailEvent
from fencepost.diagnose.tail.outcomes import Fate
from tests.command_line import start_fencepost
from tests.e2e.operating.conftest import Run
from tests.examples import hang
from tests.readers.reading import TIMEOUT_S, read_all

Unique = Callable[[str], str]
EARLIEST = Start(StartKind.EARLIEST)


@pytest.fixture
def topic(run: Run, unique: Unique) -> str:
    name = unique("tailed")
    assert run("topic", "create", name).exit_code == 0
    return name


def producer_of(servers: str, transactional_id: str | None = None, **more: str) -> Producer:
    settings: dict[str, Any] = {"bootstrap.servers": servers, "linger.ms": 0, "log_level": 0}
    if transactional_id is None:
        return Producer(settings | more)
    producer = Producer(settings | {"transactional.id": transactional_id} | more)
    producer.init_transactions(TIMEOUT_S)
    return producer


def write(producer: Producer, topic: str, *values: bytes | str | None, **more: Any) -> None:
    for value in values:
        producer.produce(topic, value, partition=0, **more)
    assert producer.flush(TIMEOUT_S) == 0


def await_marker(run: Run, topic: str, offset: int) -> None:
    """Apache Kafka answers EndTxn before it writes the marker."""
    while run("topic", "describe", topic, "--json").document["partitions"][0]["last_stable_offset"] <= offset:
        pass


def outcomes(lines: list[Any]) -> list[tuple[int, str, str | None]]:
    return [(line["offset"], f"{line['type']} {line['outcome']}", line["transactional_id"]) for line in lines]


def test_every_outcome_is_told_apart(run: Run, servers: str, topic: str, unique: Unique) -> None:
    done, broken, stuck = unique("done"), unique("broken"), unique("stuck")
    write(producer_of(servers), topic, b"outside")
    committing, aborting, waiting = (producer_of(servers, id_) for id_ in (done, broken, stuck))
    for producer in (committing, aborting):
        producer.begin_transaction()
        write(producer, topic, b"one", b"two")
    committing.commit_transaction(TIMEOUT_S)
    await_marker(run, topic, 2)
    aborting.abort_transaction(TIMEOUT_S)
    await_marker(run, topic, 6)
    waiting.begin_transaction()
    write(waiting, topic, b"three")
    # Behind the open transaction, so read_committed readers do not see it yet.
    committing.begin_transaction()
    write(committing, topic, b"four")
    committing.commit_transaction(TIMEOUT_S)
    while (shown := run("tail", topic, "--from", "earliest", "--json")).lines[-1]["type"] != "marker":
        pass  # Until the last marker is there.
    assert outcomes(shown.lines) == [
        (0, "record plain", None),
        (1, "record committed", done),
        (2, "record committed", done),
        (3, "record aborted", broken),
        (4, "record aborted", broken),
        (5, "marker committed", done),
        (6, "marker aborted", broken),
        (7, "record open", stuck),
        (8, "record committed", done),
        (9, "marker committed", done),
    ]
    # What is plain or committed below the last stable offset is exactly what read_committed readers get.
    waiting.abort_transaction(TIMEOUT_S)
    await_marker(run, topic, 10)
    seen = [record.offset for record in read_all(servers, [topic])]
    after = run("tail", topic, "--from", "earliest", "--json").lines
    assert [
        line["offset"] for line in after if line["type"] == "record" and line["outcome"] in ("plain", "committed")
    ] == seen
    assert outcomes(after)[7] == (7, "record aborted", stuck)


@pytest.mark.parametrize("start", [3, 4, 6], ids=["first", "middle", "last"])
def test_a_start_in_the_middle_of_a_transaction_and_of_a_batch_tells_the_same_outcomes(
    run: Run, servers: str, topic: str, unique: Unique, start: int
) -> None:
    id_ = unique("aborts")
    producer = producer_of(servers, id_, **{"linger.ms": "200"})
    producer.begin_transaction()
    write(producer, topic, *[b"before"] * 3)
    for n in range(4):  # One batch.
        producer.produce(topic, str(n), partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    producer.abort_transaction(TIMEOUT_S)
    await_marker(run, topic, 7)
    shown = run("tail", f"{topic}:0", "--from", str(start), "--json").lines
    expected = [(offset, "record aborted", id_) for offset in range(start, 7)] + [(7, "marker aborted", id_)]
    assert outcomes(shown) == expected


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_all_compressions_are_read(run: Run, servers: str, topic: str, codec: str) -> None:
    producer = producer_of(servers, **{"compression.type": codec, "linger.ms": "200"})
    for n in range(50):
        producer.produce(topic, f"{n} " + "again " * 50, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    shown = run("tail", topic, "--from", "-3", "--json").lines
    assert [line["value"].split()[0] for line in shown] == ["47", "48", "49"]
    assert {line["compression"] for line in shown} == {codec}


def test_bytes_of_strangers_do_not_reach_the_terminal(run: Run, servers: str, topic: str) -> None:
    write(producer_of(servers), topic, b"\x1b]0;owned\x07", key=b"\xff\xfe", headers=[("trace\x1b", b"\r")])
    write(producer_of(servers), topic, None, b"x" * 300)
    text = run("tail", topic).out
    assert "key=0xfffe  value=\\x1b]0;owned\\x07  header:trace\\x1b=\\r" in text
    assert "key=null  value=null" in text
    assert "x… (300 bytes)" in text
    assert "\x1b" not in text
    assert "x" * 300 in run("tail", topic, "--full").out
    first = run("tail", topic, "--json").lines[0]
    assert (first["key"], first["key_base64"], first["value"]) == (None, "//4=", "\x1b]0;owned\x07")
    assert first["headers"] == [{"name": "trace\x1b", "value": "\r", "value_base64": None}]


def test_the_last_ten_offsets_are_the_default_and_times_are_places_to_start(run: Run, servers: str, topic: str) -> None:
    write(producer_of(servers), topic, *[str(n) for n in range(12)], timestamp=1_700_000_000_000)
    write(producer_of(servers), topic, "new")
    assert [line["offset"] for line in run("tail", topic, "--json").lines] == list(range(3, 13))
    for start in ("5m", "2023-11-15T00:00:00Z", "2023-11-15"):
        assert [line["offset"] for line in run("tail", topic, "--from", start, "--json").lines] == [12]
    assert run("tail", topic, "--from", "latest").out == ""
    late = run("tail", topic, "--from", "99")
    assert (late.exit_code, late.out) == (0, "")
    assert f"warning: {topic}-0 has no offset 99 yet: it ends before 13" in late.err


def test_a_hanging_transaction_is_open_and_its_end_is_the_marker_that_aborts_it(
    run: Run, servers: str, topic: str, unique: Unique
) -> None:
    id_ = unique("audit")
    hang(servers, topic, id_)
    assert outcomes(run("tail", topic, "--json").lines) == [(0, "record open", id_)]
    assert run("txn", "abort", "--topic", topic, "--partition", "0", "--yes").exit_code == 0
    assert outcomes(run("tail", topic, "--json").lines) == [(0, "record aborted", id_), (1, "marker aborted", id_)]


# --- mistakes ---------------------------------------------------------------------------------------------


def test_an_unknown_topic_or_partition_is_named(run: Run, topic: str) -> None:
    unknown = run("tail", f"{topic}x")
    assert unknown.exit_code == 1
    assert f"error: topic {topic}x does not exist" in unknown.err
    assert f"hint: did you mean {topic}?" in unknown.err
    beyond = run("tail", f"{topic}:7")
    assert beyond.exit_code == 1
    assert "the topic has 1 partition" in beyond.err


def test_a_damaged_batch_is_named_with_both_checksums_and_not_shown(
    run: Run, servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = producer_of(servers)
    for value in (b"first", b"second", b"third"):
        write(producer, topic, value)

    def on_a_bad_disk(*asked: Any) -> dict[int, FetchedPartition]:
        answers = fetch_partitions(*asked)
        return {n: p._replace(records=bytes(p.records).replace(b"second", b"sAcond")) for n, p in answers.items()}

    monkeypatch.setattr("fencepost.client.fetching.fetch_partitions", on_a_bad_disk)
    shown = run("tail", f"{topic}:0", "--from", "earliest", "--json")
    assert (shown.exit_code, [line["value"] for line in shown.lines]) == (1, ["first"])
    assert re.match(
        rf"error: {topic}-0: the record batch at offset 1 is damaged: "
        r"crc is 0x[0-9a-f]{8}, the header says 0x[0-9a-f]{8} \(at byte 17\)\n\n"
        rf"hint: `fencepost tail --from 2 {topic}:0` shows what follows it\n",
        shown.err,
    )
    assert [line["value"] for line in run("tail", f"{topic}:0", "--from", "2", "--json").lines] == ["third"]


def test_an_empty_topic_has_no_records_and_no_producers_and_says_so(run: Run, topic: str) -> None:
    empty = run("tail", topic, "--json")
    assert (empty.exit_code, empty.out, empty.err) == (0, "", f"no records in {topic} from there on\n")
    quiet = run("txn", "producers", topic, "--json")
    assert (quiet.exit_code, quiet.document["producers"]) == (0, [])
    assert quiet.err == f"no producers: {topic} remembers none\n"


def test_a_start_that_makes_no_sense_is_a_wrong_call(run: Run, topic: str) -> None:
    for start in ("soon", "10x", "99999999999999999999999", "5.m"):
        wrong = run("tail", topic, "--from", start)
        assert wrong.exit_code == 2, start


# --- what arrives -----------------------------------------------------------------------------------------


@contextmanager
def following(servers: str, topic: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    process = start_fencepost("tail", topic, "--follow", "--bootstrap", servers, "--from", "earliest", *more)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def test_an_open_record_that_was_shown_is_reported_when_it_ends_and_ctrl_c_ends_cleanly(
    servers: str, topic: str, unique: Unique
) -> None:
    id_ = unique("slow")
    producer = producer_of(servers, id_)
    producer.begin_transaction()
    write(producer, topic, b"first")
    with following(servers, topic, "--json") as process:
        first = json.loads(next_line(process))
        assert (first["offset"], first["outcome"], first["transactional_id"]) == (0, "open", id_)
        write(producer, topic, b"second")
        assert json.loads(next_line(process))["outcome"] == "open"
        producer.commit_transaction(TIMEOUT_S)
        marker, end = json.loads(next_line(process)), json.loads(next_line(process))
        assert (marker["type"], marker["offset"], marker["outcome"]) == ("marker", 2, "committed")
        assert (end["type"], end["outcome"], end["transactional_id"]) == ("end", "committed", id_)
        assert (end["first_offset"], end["last_offset"], end["record_count"], end["marker_offset"]) == (0, 1, 2, 2)
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_the_end_of_an_open_transaction_is_a_line_of_its_own(servers: str, topic: str, unique: Unique) -> None:
    id_ = unique("slow")
    producer = producer_of(servers, id_)
    producer.begin_transaction()
    write(producer, topic, b"first", b"second")
    with following(servers, topic) as process:
        assert re.search(rf"  0  .*Z  open       {id_} \(producer \d+, epoch 0\)  key=null", next_line(process))
        next_line(process)
        producer.abort_transaction(TIMEOUT_S)
        assert re.search(rf"  2  .*  marker     ABORT of {id_}", next_line(process))
        end = next_line(process)
        assert re.fullmatch(
            rf"{topic}-0  offsets 0-1 of {id_} \(producer \d+, epoch 0\): aborted by the marker at 2", end
        )


def test_a_reader_that_closes_the_pipe_ends_it_although_nothing_arrives(servers: str, topic: str) -> None:
    write(producer_of(servers), topic, b"one")
    with following(servers, topic) as process:
        assert next_line(process)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(TIMEOUT_S) == ReaderGone.exit_code
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_topic_that_is_deleted_while_it_is_followed_is_reported(run: Run, servers: str, topic: str) -> None:
    write(producer_of(servers), topic, b"one")
    with following(servers, topic) as process:
        assert next_line(process)
        assert run("topic", "delete", topic, "--yes").exit_code == 0
        assert process.wait(TIMEOUT_S) == 1
        assert process.stderr is not None
        assert f"error: topic {topic} was deleted" in process.stderr.read()


def delete_records(servers: str, topic: str, before: int, partition: int = 0) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for deleted in admin.delete_records([TopicPartition(topic, partition, before)]).values():
        deleted.result(TIMEOUT_S)


def until(events: Iterator[TailEvent], kind: type[TailEvent]) -> list[TailEvent]:
    found = []
    for event in events:
        found.append(event)
        if isinstance(event, kind):
            break
    return found


def test_a_marker_that_was_deleted_unread_leaves_an_unknown_outcome_and_no_wrong_one(
    run: Run, servers: str, topic: str, unique: Unique
) -> None:
    ended, lasting = producer_of(servers, unique("ended")), producer_of(servers, unique("lasting"))
    for producer in (ended, lasting):
        producer.begin_transaction()
        write(producer, topic, b"open")
    with KafkaClient({"bootstrap.servers": servers}) as client:
        reading = TopicTail(client, topic)
        assert [event.fate for event in reading.present(EARLIEST) if isinstance(event, ReadRecord)] == [Fate.OPEN] * 2
        # The first transaction ends and its marker is deleted before the reader comes to it.
        ended.commit_transaction(TIMEOUT_S)
        while run("topic", "describe", topic, "--json").document["partitions"][0]["high_watermark"] < 3:
            pass
        write(producer_of(servers), topic, b"after")
        delete_records(servers, topic, 3)
        arriving = reading.arriving(lambda: False)
        remark, end = until(arriving, EndedOffsets)
        assert remark == Remark(f"{topic}-0: offsets 2 to 2 were deleted before they were read")
        assert isinstance(end, EndedOffsets)
        assert (end.fate, end.offsets.first_offset) == (Fate.UNKNOWN, 0)
        # The second is still open, and its end is told.
        lasting.abort_transaction(TIMEOUT_S)
        record, marker, end = until(arriving, EndedOffsets)
        assert isinstance(record, ReadRecord)
        assert isinstance(marker, ReadMarker)
        assert isinstance(end, EndedOffsets)
        assert (end.fate, end.offsets.first_offset) == (Fate.ABORTED, 1)


def test_records_that_are_deleted_before_they_are_read_are_remarked(run: Run, servers: str, unique: Unique) -> None:
    topic = unique("tailed")
    assert run("topic", "create", topic, "--partitions", "2").exit_code == 0
    producer = producer_of(servers)
    for n in range(20):
        producer.produce(topic, str(n), partition=n % 2)
    assert producer.flush(TIMEOUT_S) == 0
    with KafkaClient({"bootstrap.servers": servers}) as client:
        reading = TopicTail(client, topic).present(EARLIEST)
        first = next(reading)
        assert isinstance(first, ReadRecord)
        delete_records(servers, topic, 6, partition=1)
        rest = [event for event in reading if isinstance(event, Remark) or event.where.partition == 1]
        assert rest[0] == Remark(f"{topic}-1: offsets 0 to 5 were deleted before they were read")
        assert [event.record.offset for event in rest if isinstance(event, ReadRecord)] == [6, 7, 8, 9]


def test_a_topic_that_is_created_again_is_not_taken_for_the_first(run: Run, servers: str, topic: str) -> None:
    write(producer_of(servers), topic, b"one")
    with KafkaClient({"bootstrap.servers": servers}) as client:
        reading = TopicTail(client, topic)
        assert len(list(reading.present(EARLIEST))) == 1
        assert run("topic", "delete", topic, "--yes").exit_code == 0
        assert run("topic", "create", topic).exit_code == 0
        write(producer_of(servers), topic, b"other", b"other")
        with pytest.raises(TopicGone, match="was deleted, and created again"):
            list(reading.arriving(lambda: False))
