"""How offsets are split into requests."""

from __future__ import annotations

from fencepost.client.admin.offsets import MOST_APPENDED_BYTES, OffsetToCommit, split_offsets

# What Apache Kafka 4.3.1 appends for one of these: 1,792 fit into 1,048,588 bytes, and 1,793 do not.
GROUP, TOPIC, METADATA, MEASURED_BYTES = "g" * 20, "t" * 20, "m" * 500, 586


def test_a_few_offsets_go_into_one_request_and_no_offsets_too() -> None:
    [request] = split_offsets("g", [OffsetToCommit("a", 0, 7), OffsetToCommit("b", 0, 8), OffsetToCommit("a", 1, 9)])
    assert {topic: [o.partition for o in offsets] for topic, offsets in request.items()} == {"a": [0, 1], "b": [0]}
    assert split_offsets("g", []) == [{}]


def test_the_offsets_of_fifty_thousand_partitions_are_split_and_none_is_lost() -> None:
    wanted = [OffsetToCommit(TOPIC, p, p, METADATA) for p in range(50_000)]
    requests = split_offsets(GROUP, wanted)
    assert [offset for request in requests for offset in request[TOPIC]] == wanted
    assert max(len(request[TOPIC]) for request in requests) * MEASURED_BYTES <= MOST_APPENDED_BYTES


def test_the_bytes_of_names_and_metadata_count_and_not_their_characters() -> None:
    assert len(split_offsets("g", [OffsetToCommit("t", p, 0, "é" * 400) for p in range(2)], most_bytes=1000)) == 2


def test_an_offset_that_is_too_large_alone_goes_alone() -> None:
    requests = split_offsets("g", [OffsetToCommit("t", p, 0, "m" * 500) for p in range(3)], most_bytes=100)
    assert [len(request["t"]) for request in requests] == [1, 1, 1]
