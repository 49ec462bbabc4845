"""The sink without failures: what it writes, where, how often; and what it refuses."""

from __future__ import annotations

import datetime
import random
import re
import shutil
import socket
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fencepost.spark.sink import BatchTransaction, SinkError
from fencepost.testing import Broker
from tests.e2e.conftest import StartBroker, Target
from tests.e2e.spark.streams import (
    Lines,
    MakeSink,
    commit_notes,
    create_anew,
    create_topic,
    is_free,
    is_soon_free,
    outcomes,
    read,
    run,
    stream,
    until_half_written,
    values,
    written,
)
from tests.readers.reading import committed_offsets
from tests.unit.spark.encode.partitioner import partition_for

pytestmark = [pytest.mark.java, pytest.mark.usefixtures("plane")]

Unique = Callable[[str], str]


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    return Lines(tmp_path / "lines")


# --- a plain frame ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transaction_version", ["2", "1"])
def test_a_frame_goes_in_one_transaction_to_the_partitions_that_java_would_choose(
    spark: Any, start_broker: StartBroker, sinks: MakeSink, transaction_version: str
) -> None:
    servers = start_broker(transaction_version=transaction_version).bootstrap_servers
    topic = create_topic(servers, "out", 5)
    sink = sinks(servers, "plain", topic=topic)
    frame = spark.range(0, 2000, 1, 4).selectExpr("concat('key ', id) AS key", "cast(id AS string) AS value")

    assert sink.write(frame) == 2000

    found = read(servers, topic)
    assert sorted(int(r.value or b"") for r in found) == list(range(2000))
    assert all(r.partition == partition_for(r.key or b"", 5) for r in found)
    assert written(servers, topic) == 2000 + 5, "one commit marker in each partition"
    assert is_free(servers, topic)


def test_a_write_is_an_execution_of_spark_with_its_metrics_and_listeners(
    spark: Any, broker: Broker, unique: Unique, sinks: MakeSink
) -> None:
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    servers = broker.bootstrap_servers
    sink = sinks(servers, unique("observed"), topic=create_topic(servers, unique("observed")))
    seen = Observation("seen")
    frame = spark.range(0, 100, 1, 2).selectExpr("cast(id AS string) AS value")

    assert sink.write(frame.observe(seen, f.count(f.lit(1)).alias("rows"))) == 100

    assert seen.get == {"rows": 100}


def test_every_column_of_sparks_own_kafka_sink_is_understood(
    spark: Any, broker: Broker, unique: Unique, sinks: MakeSink
) -> None:
    servers = broker.bootstrap_servers
    topic, other = create_topic(servers, unique("columns")), create_topic(servers, unique("columns"))
    when = datetime.datetime(2024, 5, 6, 7, 8, 9, 123000, tzinfo=datetime.UTC)
    rows = [
        (topic, None, b"k", b"v", [("trace", b"\0\xff"), ("none", None)], when),
        (topic, None, b"gone", None, None, None),
        (other, 2, b"k", b"elsewhere", [], when),
    ]
    schema = (
        "topic string, partition int, key binary, value binary, "
        "headers array<struct<key:string,value:binary>>, timestamp timestamp"
    )

    assert sinks(servers, unique("columns")).write(spark.createDataFrame(rows, schema)) == 3

    found = {r.key: r for r in read(servers, topic)}
    assert found[b"k"] == (
        partition_for(b"k", 3),
        b"k",
        b"v",
        int(when.timestamp() * 1000),
        (("trace", b"\0\xff"), ("none", None)),
    )
    tombstone = found[b"gone"]
    assert tombstone.value is None
    assert tombstone.headers == ()
    assert abs(tombstone.timestamp_ms / 1000 - datetime.datetime.now().timestamp()) < 60
    assert [(r.partition, r.value) for r in read(servers, other)] == [(2, b"elsewhere")]


def test_both_planes_write_the_same_records_to_the_same_partitions(
    spark: Any, broker: Broker, unique: Unique, sinks: MakeSink, plane: str
) -> None:
    if plane == "python":
        pytest.skip("the test is about both")
    servers, rng = broker.bootstrap_servers, random.Random(7)
    begin = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

    def some_bytes() -> bytes | None:
        return rng.choice([None, b"", rng.randbytes(rng.randrange(1, 40)), rng.randbytes(rng.randrange(200))])

    rows = [
        (
            n % 7 if n % 5 == 0 else None,
            some_bytes() if n % 5 == 0 else rng.randbytes(n % 41),
            some_bytes(),
            rng.choice([None, [], [(f"h{n}é", some_bytes()), ("", b"")]]),
            begin + datetime.timedelta(microseconds=rng.randrange(2**50)),
        )
        for n in range(500)
    ]
    schema = (
        "partition int, key binary, value binary, headers array<struct<key:string,value:binary>>, timestamp timestamp"
    )
    frame = spark.createDataFrame(rows, schema).coalesce(1).cache()
    found = {}
    for each in ("jvm", "python"):
        # Small record batches, so that there are many, and some that are too large for their topic.
        topic = create_topic(servers, unique("same"), 7, max_message_bytes="4000")
        limits = {"fencepost_plane": each, "max_request_size": 8000}
        assert sinks(servers, unique("same"), topic=topic, **limits).write(frame) == 500
        found[each] = read(servers, topic)
    frame.unpersist()
    assert found["jvm"] == found["python"]


def test_a_row_that_cannot_be_a_record_is_refused_in_the_same_words(
    spark: Any, broker: Broker, unique: Unique, sinks: MakeSink
) -> None:
    servers = broker.bootstrap_servers
    topic = create_topic(servers, unique("bad"), 3)
    sink = sinks(servers, unique("bad"))
    rows = spark.range(0, 5, 1, 1)
    named = f"'{topic}' AS topic"
    for columns, message in (
        ([named, "if(id = 3, 7, 1) AS partition"], "invalid partition given with row 3: 7 is not in the range [0...3)"),
        ([named, "if(id = 2, -1L, 9L) AS timestamp"], "invalid timestamp in row 2: -1 ms since 1970 is not in the"),
        ([named, "array(named_struct('key', string(null), 'value', x'00')) AS headers"], "a record header has no key"),
        ([f"if(id = 4, null, '{topic}') AS topic"], "null topic present in the data. Use the topic option"),
    ):
        with pytest.raises(SinkError, match=re.escape(message)):
            sink.write(rows.selectExpr("'x' AS value", *columns))
    assert values(servers, topic) == []
    assert is_free(servers, topic)


def test_a_frame_without_rows_opens_no_transaction(spark: Any, broker: Broker, unique: Unique, sinks: MakeSink) -> None:
    servers = broker.bootstrap_servers
    topic = create_topic(servers, unique("empty"))
    assert sinks(servers, unique("empty"), topic=topic).write(spark.createDataFrame([], "value string")) == 0
    assert written(servers, topic) == 0


# --- a stream -----------------------------------------------------------------------------------------------


def test_a_stream_is_written_once_over_restarts_and_reruns(
    spark: Any, target: Target, unique: Unique, sinks: MakeSink, lines: Lines, tmp_path: Path
) -> None:
    servers, id_, group = target.servers, unique("stream"), unique("lag")
    topic = create_topic(servers, unique("stream"))
    checkpoint = tmp_path / "checkpoint"
    sink = sinks(servers, id_, topic=topic, group_id=group)
    lines.add_batch()
    lines.add_batch()

    run(stream(spark, lines), sink, checkpoint)
    assert values(servers, topic) == sorted(lines.all)
    assert outcomes(sink) == [(0, "committed", 40), (1, "committed", 40)]
    assert all(p.transaction_ms > 0 and 0 < p.timeout_share < 1 and p.record_batches for p in sink.recent_progress)
    assert len({p.producer_epoch for p in sink.recent_progress}) == 2, "an epoch for each transaction"
    assert committed_offsets(servers, group, topic) == {}, "files have no offsets that a group could commit"

    # The same sink, and then a new one as after a restart of the driver, continue where Spark's checkpoint ends.
    lines.add_batch()
    run(stream(spark, lines), sink, checkpoint)
    sink.close()
    lines.add_batch()
    successor = sinks(servers, id_, topic=topic)
    run(stream(spark, lines), successor, checkpoint)
    assert outcomes(successor) == [(3, "committed", 40)]
    assert values(servers, topic) == sorted(lines.all)

    # The driver died after the commit and before Spark noted it: Spark runs the micro-batch again.
    (checkpoint / "commits" / "3").unlink()
    (checkpoint / "commits" / ".3.crc").unlink(missing_ok=True)
    lines.add_batch()
    run(stream(spark, lines), successor, checkpoint)
    assert outcomes(successor)[1:] == [(3, "skipped", 0), (4, "committed", 40)]
    assert values(servers, topic) == sorted(lines.all)


def test_a_checkpoint_that_hadoop_has_to_read_serves_every_micro_batch_and_restart(
    spark: Any, broker: Broker, unique: Unique, sinks: MakeSink, lines: Lines, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    topic = create_topic(servers, unique("hadoop"))
    sink = sinks(servers, unique("hadoop"), topic=topic)
    for _ in range(2):
        lines.add_batch()
        lines.add_batch()
        run(stream(spark, lines), sink, tmp_path / "check point%20")
    assert [(batch, outcome) for batch, outcome, _ in outcomes(sink)] == [(n, "committed") for n in range(4)]
    assert values(servers, topic) == sorted(lines.all)


def test_a_batch_of_a_query_with_state_is_computed_even_if_it_is_not_written(
    spark: Any, broker: Broker, unique: Unique, sinks: MakeSink, lines: Lines, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    topic, checkpoint = create_topic(servers, unique("state")), tmp_path / "checkpoint"
    sink = sinks(servers, unique("state"), topic=topic)
    lines.add_batch()
    new_lines = stream(spark, lines).dropDuplicates(["value"])
    run(new_lines, sink, checkpoint)

    for note in (".0.crc", "0"):
        (checkpoint / "commits" / note).unlink(missing_ok=True)
    shutil.copy(lines.folder / "001.txt", lines.folder / "003.txt")  # A duplicate, which the state knows.
    run(new_lines, sink, checkpoint)

    assert outcomes(sink)[:2] == [(0, "committed", 40), (0, "skipped", 0)]
    assert values(servers, topic) == sorted(lines.all)


def test_several_outputs_are_in_one_transaction(
    spark: Any, target: Target, unique: Unique, sinks: MakeSink, lines: Lines, tmp_path: Path
) -> None:
    servers = target.servers
    refunds, audit = create_topic(servers, unique("refunds"), 1), create_topic(servers, unique("audit"), 1)
    id_ = unique("outputs")
    sink = sinks(servers, id_)
    seen = []

    @sink.batch
    def write(frame: Any, transaction: BatchTransaction) -> None:
        seen.append(transaction.write(frame, topic=refunds))
        seen.append(transaction.write(frame.selectExpr("upper(value) AS value").limit(3), topic=audit))
        assert not is_free(servers, audit), "nothing shows before the commit"

    lines.add_batch()
    run(stream(spark, lines), write, tmp_path / "checkpoint")

    assert seen == [40, 3]
    assert outcomes(sink) == [(0, "committed", 43)]
    assert values(servers, refunds) == sorted(lines.all)
    assert len(values(servers, audit)) == 3
    assert (written(servers, refunds), written(servers, audit)) == (41, 4), "one commit marker each"
    assert commit_notes(servers, id_).keys() == {(refunds, 0), (audit, 0)}


def test_a_batch_is_one_call(
    spark: Any, broker: Broker, unique: Unique, sinks: MakeSink, lines: Lines, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    topic = create_topic(servers, unique("once"))
    sink = sinks(servers, unique("once"), topic=topic)

    def twice(frame: Any, batch_id: int) -> None:
        sink(frame, batch_id)
        sink(frame, batch_id)

    lines.add_batch()
    with pytest.raises(Exception, match="a micro-batch is one transaction, and one call"):
        run(stream(spark, lines), twice, tmp_path / "twice")
    assert values(servers, topic) == sorted(lines.all), "the first call stands"
    other = sinks(servers, unique("once"), topic=topic)

    def nested(frame: Any, transaction: BatchTransaction) -> None:
        other.write(frame, token="nested")

    with pytest.raises(Exception, match="in the middle of another micro-batch"):
        run(stream(spark, lines), other.batch(nested), tmp_path / "nested")
    with pytest.raises(SinkError, match="outside a streaming query"):
        other(spark.range(3).selectExpr("'x' AS value"), 0)


def test_a_plain_frame_inside_foreach_batch_needs_a_token_because_spark_may_run_the_micro_batch_again(
    spark: Any, broker: Broker, unique: Unique, sinks: MakeSink, lines: Lines, tmp_path: Path
) -> None:
    servers, checkpoint = broker.bootstrap_servers, tmp_path / "checkpoint"
    topic = create_topic(servers, unique("plain"))
    sink = sinks(servers, unique("plain"), topic=topic)
    lines.add_batch()
    with pytest.raises(Exception, match=r"SinkError: a plain DataFrame without a token (?s:.*)transaction\.write"):
        run(stream(spark, lines), lambda frame, _: sink.write(frame), checkpoint)
    assert written(servers, topic) == 0
    for _ in range(2):
        run(stream(spark, lines), lambda frame, n: sink.write(frame, token=f"micro-batch {n}"), checkpoint)
        # As if the driver had been killed between EndTxn and Spark's own commit.
        (checkpoint / "commits" / "0").unlink()
        (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
    assert values(servers, topic) == sorted(lines.all)
    assert sink.write(spark.range(1).selectExpr("'outside' AS value")) == 1, "no query calls it here"


def test_a_topic_that_is_deleted_and_created_anew_in_the_middle_of_a_batch_gets_the_whole_batch(
    spark: Any, target: Target, unique: Unique, sinks: MakeSink, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    servers = target.servers
    topic = create_topic(servers, unique("anew"), 1)
    wait = until_half_written(servers, topic)

    def meddling(reached: Path) -> Callable[[Iterator[Any]], Iterator[Any]]:
        def meddle(batches: Iterator[Any]) -> Iterator[Any]:
            from pyspark import TaskContext

            for batch in batches:
                context = TaskContext.get()
                if context is not None and context.partitionId() == 1 and not reached.exists():
                    wait()
                    reached.touch()
                    create_anew(servers, topic)
                yield batch

        return meddle

    rows = spark.range(0, 40, 1, 2).selectExpr("cast(id AS string) AS value", f"'{topic}' AS topic")
    for way, more in (("by setting", {"topic": topic}), ("by column", {})):
        sink = sinks(servers, unique("anew"), **more)
        caplog.clear()
        assert sink.write(rows.mapInArrow(meddling(tmp_path / way), "value string, topic string")) == 40
        assert sink.recent_progress[-1].attempts == 2
        if target.version == 2 and more:
            # Produce v13 names the topic by its id, so the broker itself refuses.
            assert "UNKNOWN_TOPIC_ID (100)" in caplog.text
        assert values(servers, topic) == sorted(str(n) for n in range(40)), way
        assert is_soon_free(servers, topic)


def test_tasks_talk_to_the_driver_over_tls_if_the_user_wants_it(
    spark: Any, broker: Broker, unique: Unique, sinks: MakeSink
) -> None:
    servers = broker.bootstrap_servers
    topic = create_topic(servers, unique("tls"))
    sink = sinks(servers, unique("tls"), topic=topic, fencepost_lease_tls="true")

    assert sink.write(spark.range(0, 300, 1, 4).selectExpr("cast(id AS string) AS value")) == 300

    assert sorted(map(int, values(servers, topic))) == list(range(300))
    assert sink._runner is not None
    assert sink._runner.attempts.leases is not None
    with socket.create_connection(("127.0.0.1", sink._runner.attempts.leases.port), 10) as plain:
        plain.sendall(b"\0\0\0\2{}")
        assert plain.recv(1) in (b"", b"\x15"), "nothing, or a TLS alert"


def test_workers_without_the_package_are_reported_in_one_line(
    spark: Any,
    broker: Broker,
    unique: Unique,
    sinks: MakeSink,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = broker.bootstrap_servers
    topic = create_topic(servers, unique("bare"))
    # An environment with every package of ours except this one, and without packages from .pth files.
    bare, ours = tmp_path / "bare", Path(pa.__file__).parents[1]
    venv.create(bare, symlinks=True)
    (packages,) = bare.glob("lib/python*/site-packages")
    for found in ours.iterdir():
        if "fencepost" not in found.name and found.suffix != ".pth":
            (packages / found.name).symlink_to(found)
    isolated = bare / "bin" / "isolated"
    isolated.write_text(f'#!/bin/sh\nexec {bare}/bin/python -I "$@"\n')
    isolated.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(isolated))
    sink = sinks(servers, unique("bare"), topic=topic, fencepost_plane="python")
    with pytest.raises(SinkError) as raised:
        sink.write(spark.range(5).selectExpr("'x' AS value"))
    message = str(raised.value)
    assert message.startswith("the Python workers on the executors cannot import fencepost, which the sink's tasks")
    assert "spark.submit.pyFiles" in message
    assert "Traceback" not in message
    assert written(servers, topic) == 0
    sink.close()
    in_the_jvm = sinks(servers, unique("bare"), topic=topic, fencepost_plane="jvm")
    assert in_the_jvm.write(spark.range(5).selectExpr("'x' AS value")) == 5, "with the jar they need no package"
