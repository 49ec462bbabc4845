"""Windows of a log on Fencepost and on Apache Kafka: the same strip, the same outcomes, a bounded number of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from fencepost.client.admin.answers import NamedPartition
from fencepost.client.client import KafkaClient
from fencepost.client.failures import BrokerError
from fencepost.diagnose.collect import strip as collecting
from fencepost.diagnose.collect.reading import Start, StartKind
from fencepost.diagnose.collect.strip import Side, collect_strip
from fencepost.diagnose.strip.strip import Strip, diagnose_strip
from tests.e2e.operating.conftest import Run
from tests.e2e.operating.test_tail import await_marker, delete_records, producer_of, write
from tests.examples import hang
from tests.readers.reading import TIMEOUT_S

Unique = Callable[[str], str]
LATEST = Start(StartKind.LATEST)


def at(offset: int) -> Start:
    return Start(StartKind.OFFSET, offset)


@pytest.fixture
def topic(run: Run, unique: Unique) -> str:
    name = unique("stripped")
    assert run("topic", "create", name).exit_code == 0
    return name


@pytest.fixture
def client(servers: str) -> Iterator[KafkaClient]:
    with KafkaClient({"bootstrap.servers": servers}) as client:
        yield client


def strip_of(
    client: KafkaClient, topic: str, start: Start = LATEST, side: Side = Side.BEFORE, count: int = 100
) -> Strip:
    return diagnose_strip(collect_strip(client, NamedPartition(topic, 0), start, side, count))


def runs(strip: Strip) -> list[tuple[str, int, int, str | None]]:
    return [(run.kind, run.first_offset, run.last_offset, run.transactional_id) for run in strip.runs]


def offsets(strip: Strip) -> list[int]:
    return [cell.offset for cell in strip.cells]


def batches(producer: Producer, topic: str, *sizes: int) -> None:
    """Write batches of so many records."""
    for size in sizes:
        write(producer, topic, *[b"x"] * size)


def test_a_strip_has_every_outcome_while_a_transaction_is_open_and_after_its_end(
    run: Run, client: KafkaClient, servers: str, topic: str, unique: Unique
) -> None:
    done, broken, stuck = unique("done"), unique("broken"), unique("stuck")
    write(producer_of(servers), topic, b"outside")
    committing, aborting, waiting = (producer_of(servers, id_) for id_ in (done, broken, stuck))
    committing.begin_transaction()
    write(committing, topic, b"one", b"two")
    committing.commit_transaction(TIMEOUT_S)
    await_marker(run, topic, 3)
    aborting.begin_transaction()
    write(aborting, topic, b"three")
    aborting.abort_transaction(TIMEOUT_S)
    await_marker(run, topic, 5)
    waiting.begin_transaction()
    write(waiting, topic, b"four")
    # Behind the open transaction, so read_committed readers do not see it yet.
    committing.begin_transaction()
    write(committing, topic, b"five")
    committing.commit_transaction(TIMEOUT_S)
    while (strip := strip_of(client, topic)).high_watermark < 9:
        pass  # Until the last marker is there.
    below = [
        ("plain", 0, 0, None),
        ("committed", 1, 2, done),
        ("marker", 3, 3, done),
        ("aborted", 4, 4, broken),
        ("marker", 5, 5, broken),
    ]
    assert runs(strip) == [*below, ("open", 6, 6, stuck), ("committed", 7, 7, done), ("marker", 8, 8, done)]
    assert (strip.log_start_offset, strip.last_stable_offset, strip.high_watermark) == (0, 6, 9)
    assert [(txn.transactional_id, txn.first_offset) for txn in strip.open_transactions] == [(stuck, 6)]
    assert [cell.offset for cell in strip.cells if cell.read_committed == "gets"] == [0, 1, 2]
    # A window that ends before the markers has the same outcomes: they are found behind it, or in the aborted index.
    for first, end in ((0, 2), (1, 2), (2, 5), (4, 5), (5, 7), (6, 8), (7, 8), (8, 9)):
        part = strip_of(client, topic, at(first), Side.FROM, end - first)
        assert part.cells == strip.cells[first:end]
    waiting.abort_transaction(TIMEOUT_S)
    await_marker(run, topic, 9)
    strip = strip_of(client, topic)
    assert runs(strip)[5:] == [
        ("aborted", 6, 6, stuck),
        ("committed", 7, 7, done),
        ("marker", 8, 8, done),
        ("marker", 9, 9, stuck),
    ]
    assert (strip.last_stable_offset, strip.high_watermark, strip.open_transactions) == (10, 10, ())


def test_windows_cover_the_log_once_in_both_directions(client: KafkaClient, servers: str, topic: str) -> None:
    batches(producer_of(servers, **{"linger.ms": "100"}), topic, 7, 1, 30, 2, 10)
    forth: list[int] = []
    while len(forth) < 50:
        strip = strip_of(client, topic, at(len(forth)), Side.FROM, 8)
        assert strip.first_offset == len(forth)
        assert len(strip.cells) == min(8, 50 - len(forth))
        forth += offsets(strip)
    assert forth == list(range(50))
    back: list[int] = []
    while len(back) < 50:
        strip = strip_of(client, topic, at(50 - len(back)), Side.BEFORE, 8)
        assert strip.end_offset == 50 - len(back)
        assert len(strip.cells) == min(8, 50 - len(back))
        back = offsets(strip) + back
    assert back == list(range(50))
    for middle in (0, 1, 25, 49):
        around = strip_of(client, topic, at(middle), Side.AROUND, 8)
        assert middle in offsets(around)
        assert len(around.cells) <= 8


def test_a_window_of_large_records_is_small_and_none_is_left_out(client: KafkaClient, servers: str, topic: str) -> None:
    producer = producer_of(servers)
    for n in range(5):  # A batch for each.
        write(producer, topic, bytes([n]) * 400_000)
    back: list[int] = []
    while len(back) < 5:
        window = collect_strip(client, NamedPartition(topic, 0), at(5 - len(back)), Side.BEFORE, 100)
        assert sum(len(read.content) for read in window.batches) <= collecting.WINDOW_BYTES + 400_200
        back = offsets(diagnose_strip(window)) + back
    assert back == list(range(5))
    for middle in (0, 4):
        assert middle in offsets(strip_of(client, topic, at(middle), Side.AROUND))


def test_a_time_and_an_offset_are_places_and_what_is_not_there_is_remarked(
    client: KafkaClient, servers: str, topic: str
) -> None:
    write(producer_of(servers), topic, *[b"old"] * 12, timestamp=1_700_000_000_000)
    write(producer_of(servers), topic, b"new", timestamp=1_700_000_100_000)
    late = collect_strip(client, NamedPartition(topic, 0), Start(StartKind.TIME, 1_700_000_050_000), Side.AROUND, 4)
    assert (late.at_offset, late.first_offset, late.end_offset, late.remark) == (12, 10, 13, "")
    never = strip_of(client, topic, Start(StartKind.TIME, 1_800_000_000_000), Side.AROUND, 4)
    assert (offsets(never), never.remark) == ([11, 12], f"{topic}-0 has no record that late")
    beyond = strip_of(client, topic, at(99), Side.AROUND, 4)
    assert (offsets(beyond), beyond.remark) == ([11, 12], f"{topic}-0 has no offset 99 yet: it ends before 13")
    delete_records(servers, topic, 5)
    before = strip_of(client, topic, at(2), Side.AROUND, 4)
    assert (offsets(before)[0], before.remark) == (5, f"{topic}-0 has no offset 2 any more: it starts at 5")
    assert before.log_start_offset == 5


def test_a_marker_too_far_ahead_leaves_an_unknown_outcome_and_no_wrong_one(
    client: KafkaClient, servers: str, topic: str, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, ended = producer_of(servers, unique("waiting")), producer_of(servers, unique("ended"))
    for producer in (waiting, ended):
        producer.begin_transaction()
        write(producer, topic, b"open")
    write(producer_of(servers), topic, *[b"x" * 100_000] * 10)
    ended.abort_transaction(TIMEOUT_S)
    while strip_of(client, topic).high_watermark < 13:
        pass
    window = (client, topic, at(0), Side.FROM, 2)
    assert [cell.outcome for cell in strip_of(*window).cells] == ["open", "aborted"]
    monkeypatch.setattr(collecting, "AHEAD_BYTES", 200_000)
    assert [cell.outcome for cell in strip_of(*window).cells] == ["open", "unknown"]
    waiting.abort_transaction(TIMEOUT_S)
    while strip_of(client, topic).last_stable_offset < 14:
        pass
    # Now the aborted index knows.
    assert [cell.outcome for cell in strip_of(*window).cells] == ["aborted", "aborted"]


def test_a_hanging_transaction_is_open(client: KafkaClient, servers: str, topic: str, unique: Unique) -> None:
    id_ = unique("audit")
    hang(servers, topic, id_)
    assert runs(strip_of(client, topic)) == [("open", 0, 0, id_)]


def test_an_empty_partition_has_an_empty_strip(client: KafkaClient, topic: str) -> None:
    for side in Side:
        strip = strip_of(client, topic, LATEST, side)
        assert (strip.cells, strip.runs, strip.high_watermark) == ((), (), 0)


def test_a_partition_that_is_not_there_is_named(client: KafkaClient, topic: str) -> None:
    with pytest.raises(BrokerError, match="the topic has 1 partition"):
        collect_strip(client, NamedPartition(topic, 7), LATEST, Side.BEFORE, 10)
    with pytest.raises(BrokerError, match="it does not exist"):
        collect_strip(client, NamedPartition(f"{topic}x", 0), LATEST, Side.BEFORE, 10)
