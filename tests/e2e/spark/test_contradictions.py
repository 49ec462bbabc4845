"""Spark with a checkpoint that was restored, lost or changed, and with functions that catch the sink's exceptions.

Each hint is followed as a user would. The rules are tried one by one in `test_sink_contradictions.py`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.testing import Broker
from tests.e2e.spark.streams import Lines, MakeSink, create_topic, run, stream, values
from tests.e2e.spark.test_kafka_source import Orders, from_kafka

pytestmark = [pytest.mark.java]

Unique = Callable[[str], str]


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    return Lines(tmp_path / "lines")


def test_a_restored_checkpoint_of_files_does_not_lose_the_files_of_the_next_day(
    spark: Any, broker: Broker, unique: Unique, sinks: MakeSink, lines: Lines, tmp_path: Path
) -> None:
    servers, id_ = broker.bootstrap_servers, unique("restored")
    topic, checkpoint = create_topic(servers, unique("out")), tmp_path / "checkpoint"
    frame = spark.readStream.format("text").load(str(lines.folder))

    def day(**answer: int) -> None:
        sink = sinks(servers, id_, topic=topic, **answer)
        try:
            run(frame, sink, checkpoint)
        finally:
            sink.close()

    lines.add_batch(3)
    day()
    shutil.copytree(checkpoint, tmp_path / "copy")
    second = lines.add_batch(3)
    day()
    shutil.rmtree(checkpoint)
    (tmp_path / "copy").rename(checkpoint)
    lines.add_batch(3)
    with pytest.raises(Exception, match=r"Spark planned it anew at .* the rows may be others"):
        day()
    day(run_batch=1)
    assert values(servers, topic) == sorted(lines.all + second), "the user said so: nothing is lost"


def test_a_function_that_goes_on_after_a_failure_loses_nothing_if_its_user_follows_the_hint(
    spark: Any, broker: Broker, unique: Unique, sinks: MakeSink, lines: Lines, tmp_path: Path
) -> None:
    servers, checkpoint = broker.bootstrap_servers, tmp_path / "checkpoint"
    topic = unique("out")
    sink = sinks(servers, unique("swallowed"), topic=topic)
    said: list[str] = []

    def write(frame: Any, batch_id: int) -> None:
        if batch_id == 1:
            create_topic(servers, topic)  # Someone noticed.
        try:
            sink(frame, batch_id)
        except Exception as e:
            said.append(str(e))

    for _ in range(3):
        lines.add_batch(3)
    run(stream(spark, lines), write, checkpoint)
    assert values(servers, topic) == []
    hints = re.findall(r"(\d+) and \.\d+\.crc and those of later numbers in (\S+)/(commits|offsets)", said[-1])
    assert len(hints) == 2, said
    for first, folder, kind in hints:
        for path in Path(folder.removeprefix("file:"), kind).iterdir():
            if int(path.name.strip(".").removesuffix(".crc")) >= int(first):
                path.unlink()
    run(stream(spark, lines), sink, checkpoint)
    assert values(servers, topic) == sorted(lines.all)


def test_offsets_that_are_not_those_that_the_query_planned_are_refused(
    spark: Any, broker: Broker, unique: Unique, sinks: MakeSink, lines: Lines, tmp_path: Path
) -> None:
    servers, checkpoint = broker.bootstrap_servers, tmp_path / "checkpoint"
    topic = create_topic(servers, unique("out"))
    sink = sinks(servers, unique("changed"), topic=topic)

    def write(frame: Any, batch_id: int) -> None:
        planned = checkpoint / "offsets" / str(batch_id)
        planned.write_text(planned.read_text().replace('{"logOffset":0}', '{"logOffset":7}'))
        sink(frame, batch_id)

    lines.add_batch(3)
    frame = spark.readStream.format("text").load(str(lines.folder))
    with pytest.raises(Exception, match=r'offsets/0 has .*"logOffset":7.* but the query has planned .*"logOffset":0'):
        run(frame, write, checkpoint)
    assert values(servers, topic) == []


def test_the_hint_for_a_lost_checkpoint_can_be_typed_as_options_of_the_format_also_if_the_topic_has_grown(
    kafka_source: Any, broker: Broker, unique: Unique, tmp_path: Path
) -> None:
    servers, id_ = broker.bootstrap_servers, unique("lost")
    orders, topic = Orders(servers, unique("orders")), create_topic(servers, unique("out"))

    def run_format(checkpoint: str, starting_offsets: str = "earliest", **options: str) -> str:
        """Returns the error of the query, if it failed."""
        frame = from_kafka(kafka_source, servers, orders.topic, startingOffsets=starting_offsets)
        writer = frame.writeStream.format("fencepost").option("kafka.bootstrap.servers", servers)
        writer = writer.option("topic", topic).option("transactional.id", id_).options(**options)
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
        try:
            query.awaitTermination(60)
        except Exception as e:
            return str(e)
        return ""

    orders.add(9)
    assert run_format("first") == ""
    orders.add_partition()
    orders.add(8)
    refused = run_format("second")
    adopt = re.search(r'set adopt="(\S+)"', refused)
    offsets = re.search(r"""startingOffsets", '(.*?)'""", refused)
    assert adopt is not None, refused
    assert offsets is not None, refused
    assert json.loads(offsets[1]) == {orders.topic: {"0": 5, "1": 4, "2": -2}}
    assert "would be written twice" in run_format("second", adopt=adopt[1]), "with the checkpoint that was refused"
    assert "would be written twice" in run_format("third", adopt=adopt[1])
    assert run_format("fourth", offsets[1], adopt=adopt[1]) == ""
    assert values(servers, topic) == sorted(orders.all)
