"""Reading Spark's checkpoint. The samples were written by Spark 4.0.5 and 4.3.0."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.spark.checkpoint.files import LocalFiles
from fencepost.spark.checkpoint.offsets import (
    BadCheckpoint,
    has_state,
    parse_kafka_ends,
    parse_offsets,
    read_offsets,
    read_query_id,
    read_start,
)

METADATA = (
    '{"batchWatermarkMs":0,"batchTimestampMs":1794780727599,"conf":{'
    '"spark.sql.streaming.stateStore.providerClass":'
    '"org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",'
    '"spark.sql.shuffle.partitions":"2"}}'
)
V1 = f'v1\n{METADATA}\n{{"in2":{{"0":34}},"in1":{{"0":36,"1":30}}}}\n1'
V2_METADATA = METADATA[:-1] + ',"sourceMetadataInfo":{}}'
V2 = f'v2\n{V2_METADATA}\npayments:{{"in2":{{"0":34}}}}\n0:4'
ENDS = {"in2": {0: 34}, "in1": {0: 36, 1: 30}}


class Files:
    """A checkpoint in memory."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def exists(self, path: str) -> bool:
        return any(name == path or name.startswith(f"{path}/") for name in self.files)

    def write(self, path: str, text: str) -> None:
        raise NotImplementedError


# --- the offset log -----------------------------------------------------------------------------------------


def test_version_1_lists_sources_by_position() -> None:
    batch = parse_offsets(V1)
    assert [(s.name, s.text) for s in batch.sources] == [("0", '{"in2":{"0":34},"in1":{"0":36,"1":30}}'), ("1", "1")]
    assert batch.kafka_ends == [ENDS]
    assert batch.timestamp_ms == 1794780727599


def test_version_2_names_its_sources() -> None:
    batch = parse_offsets(V2)
    assert [(s.name, s.text) for s in batch.sources] == [("payments", '{"in2":{"0":34}}'), ("0", "4")]
    assert batch.kafka_ends == [{"in2": {0: 34}}]
    assert batch.timestamp_ms == 1794780727599


@pytest.mark.parametrize("line", ["v1\n{}\n-\n7", "v2\n{}\na:-\nb:7"])
def test_a_source_without_data_has_no_offset(line: str) -> None:
    batch = parse_offsets(line)
    assert [s.text for s in batch.sources] == [None, "7"]
    assert batch.kafka_ends == []


def test_the_digest_is_of_the_source_lines_alone() -> None:
    again = V1.replace("1794780727599", "1794780727600").replace('"2"', '"200"')
    assert parse_offsets(again).digest == parse_offsets(V1).digest
    assert parse_offsets(V1.replace('"0":36', '"0":37')).digest != parse_offsets(V1).digest
    assert parse_offsets(V1[:-1] + "2").digest != parse_offsets(V1).digest
    assert parse_offsets(V2.replace("payments:", "refunds:")).digest != parse_offsets(V2).digest


def test_a_batch_without_metadata_has_no_time() -> None:
    assert parse_offsets("v1\n\n7").timestamp_ms is None
    assert parse_offsets('v1\n{"batchTimestampMs":0}\n7').timestamp_ms is None


@pytest.mark.parametrize("text", ["", "v1", "v3\n{}\n7", "1\n{}\n7", "v2\n{}\nno colon"])
def test_a_file_that_spark_did_not_write_is_refused(text: str) -> None:
    with pytest.raises(BadCheckpoint, match="offsets/7: "):
        read_offsets(Files({"offsets/7": text}), 7)


def test_a_micro_batch_that_spark_did_not_plan_is_refused() -> None:
    with pytest.raises(BadCheckpoint, match="no offsets/8"):
        read_offsets(Files({"offsets/7": V1}), 8)


def test_a_line_separator_of_unicode_inside_an_offset_ends_no_line() -> None:
    assert len(parse_offsets('v1\n{}\n{"path":"a\u2028b\x85c"}').sources) == 1


# --- which sources are Kafka's ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "-1",
        '"text"',
        "not json",
        "{}",
        "[]",
        '{"logOffset":4}',
        '{"t":{}}',
        '{"t":{"x":1}}',
        '{"t":{"0":"1"}}',
        '{"t":{"0":1.5}}',
        '{"t":{"0":true}}',
        '{"a":{"0":1},"b":7}',
    ],
)
def test_offsets_of_other_sources_are_not_taken_for_kafkas(text: str) -> None:
    assert parse_kafka_ends(text) is None


def test_a_source_that_says_it_is_something_else_is_believed() -> None:
    kafka = ["KafkaV2[Subscribe[in1, in2]]", "RateStreamV2[rowsPerSecond=5"]
    assert parse_offsets(V1, kafka).kafka_ends == [ENDS]
    assert parse_offsets(V1, ["EventHubs[in1]", "RateStreamV2"]).kafka_ends == []
    assert parse_offsets(V1, ["AvailableNowDataStreamWrapper@1f", "RateStreamV2"]).kafka_ends == [ENDS]
    assert parse_offsets(V1, ["one too few"]).kafka_ends == [ENDS]


def test_a_provider_named_in_the_metadata_is_believed() -> None:
    info = '"sourceMetadataInfo":{"payments":{"sourceId":"payments","providerName":"eventhubs","apiVersion":"v2"}}'
    assert parse_offsets(V2.replace('"sourceMetadataInfo":{}', info)).kafka_ends == []
    assert len(parse_offsets(V2.replace('"sourceMetadataInfo":{}', info.replace("eventhubs", "kafka"))).kafka_ends) == 1


def test_several_kafka_sources_have_consumed_up_to_the_lowest_of_their_ends() -> None:
    batch = parse_offsets('v1\n{}\n{"a":{"0":5,"1":7}}\n-\n{"a":{"0":3},"b":{"0":9}}')
    assert len(batch.kafka_ends) == 2
    assert batch.consumed == {("a", 0): 3, ("a", 1): 7, ("b", 0): 9}


# --- the rest of the checkpoint -----------------------------------------------------------------------------


def test_the_query_id_is_in_the_metadata_file() -> None:
    files = Files({"metadata": '{"id":"085a50be-a657-4fc4-a889-73ccf4206911"}'})
    assert read_query_id(files) == "085a50be-a657-4fc4-a889-73ccf4206911"
    for bad in ({}, {"metadata": ""}, {"metadata": '{"id":7}'}):
        with pytest.raises(BadCheckpoint):
            read_query_id(Files(bad))


def test_a_query_with_a_state_folder_keeps_state() -> None:
    assert has_state(Files({"commits/3": "v1\n{}", "state/0/0/1.delta": ""}))
    assert not has_state(Files({"commits/3": ""}))


def test_local_files_are_read_and_missing_ones_are_none(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(V1)
    files = LocalFiles(tmp_path)
    assert read_offsets(files, 0) == parse_offsets(V1)
    assert files.read("offsets/1") is None
    assert files.exists("offsets")
    assert not files.exists("state")


# --- where a micro-batch starts -----------------------------------------------------------------------------

INITIAL = '\0v1\n{"untouched-5":{"0":0},"orders-3":{"0":5,"1":4}}'


def test_micro_batch_0_starts_at_the_initial_offsets_of_its_kafka_sources() -> None:
    batch = parse_offsets(f'v2\n{V2_METADATA}\npayments:{{"in":{{"0":9}}}}\n1:{{"in":{{"0":9}}}}\n2:4')
    initial = {"sources/payments/0": '\0v1\n{"in":{"0":5}}', "sources/1/0": '\0v1\n{"in":{"0":5,"1":2}}'}
    start = read_start(Files({**initial, "sources/2/0": INITIAL}), 0, batch)
    assert start.offsets == {("in", 0): 5, ("in", 1): 2}
    assert not start.digests, "where the third source starts is not known"


def test_sources_at_different_offsets_of_one_partition_have_no_offsets_in_common() -> None:
    """They may be the same topic at two moments, or topics of the same name in two clusters."""
    batch = parse_offsets('v1\n{}\n{"in":{"0":9,"1":4}}\n{"in":{"0":7,"1":4}}')
    assert (batch.ends, batch.reads_twice) == ({}, True)
    assert batch.consumed == {("in", 0): 7, ("in", 1): 4}, "the group shows the lag of the slower one"
    files = {"sources/0/0": '\0v1\n{"in":{"0":5}}', "sources/1/0": '\0v1\n{"in":{"0":6}}', "offsets/0": "v1\n{}\n"}
    assert not read_start(Files(files), 0, batch).offsets
    assert not read_start(Files({"offsets/0": 'v1\n{}\n{"in":{"0":9}}\n{"in":{"0":7}}'}), 1, batch).offsets
    once = parse_offsets('v1\n{}\n{"in":{"0":9}}\n{"out":{"0":7}}')
    assert (once.ends, once.reads_twice) == ({("in", 0): 9, ("out", 0): 7}, False)


@pytest.mark.parametrize("end", ['v1\nM\n{"in":{"0":5}}', 'v2\nM\n0:{"in":{"0":5}}'])
def test_the_start_of_a_query_is_known_by_the_digest_of_a_micro_batch_that_ended_there(end: str) -> None:
    ended = parse_offsets(end.replace("M", V2_METADATA))
    files = Files({"sources/0/0": '\0v1\n{"in":{"0":5}}', "offsets/3": end.replace("M", V2_METADATA)})
    assert ended.digest in read_start(files, 0, ended).digests
    assert list(read_start(files, 4, ended).digests) == [ended.digest]


def test_a_later_micro_batch_starts_where_the_one_before_it_ended() -> None:
    batch = parse_offsets(V1.replace("36", "40"))
    start = {("in2", 0): 34, ("in1", 0): 36, ("in1", 1): 30}
    assert read_start(Files({"offsets/6": V1, "sources/0/0": INITIAL}), 7, batch).offsets == start


@pytest.mark.parametrize("batch_id", [0, 7])
@pytest.mark.parametrize("text", ["?", "", "\0", "v1", 'v2\n{"in":{"0":1}}', 'v1\n{"path":"file:///in/1","batchId":0}'])
def test_a_start_that_the_checkpoint_does_not_have_is_left_out(batch_id: int, text: str) -> None:
    for files in ({"offsets/6": "v9\n", "sources/0/0": text}, {}):
        start = read_start(Files(files), batch_id, parse_offsets(V1))
        assert (start.offsets, list(start.digests)) == ({}, [])


def test_the_sources_that_are_not_kafkas_have_the_names_that_spark_gives_them() -> None:
    batch = parse_offsets(V1)
    assert batch.others() == ["source 1"]
    assert batch.others(["KafkaV2[Subscribe[in1, in2]]", "RateStream"]) == ["RateStream"]
    assert not batch.identify_rows
    assert parse_offsets(V1.removesuffix("\n1") + "\n-").identify_rows, "no data has come from the second source so far"
