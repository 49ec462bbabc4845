"""The sink's own groups on dashboards of lag: the commit notes in them do not look like unread records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fencepost.cli import main
from fencepost.client.admin.offsets import all_committed_offsets
from fencepost.client.admin.partitions import end_offset
from fencepost.client.client import KafkaClient
from fencepost.spark.driver import owner
from fencepost.spark.driver.commit_note import note_group, token_group
from fencepost.spark.sink import ExactlyOnceSink
from tests.e2e.conftest import Target
from tests.e2e.spark.streams import create_topic, is_soon_free, values
from tests.engines.sparkless import Query, sink_of, write_values


@pytest.fixture
def topic(target: Target, unique: Callable[[str], str]) -> str:
    return create_topic(target.servers, unique("notes"))


@contextmanager
def closing(sink: ExactlyOnceSink) -> Iterator[ExactlyOnceSink]:
    try:
        yield sink
    finally:
        sink.close()


def lag(servers: str, group_id: str) -> dict[str, int]:
    """As dashboards compute it: the end of each partition minus the group's offset."""
    with KafkaClient({"bootstrap.servers": servers}) as client:
        committed = all_committed_offsets(client, group_id)
        return {
            f"{topic}-{partition}": end_offset(client, topic, partition, read_committed=False) - offset
            for (topic, partition), (offset, _) in committed.items()
        }


def test_the_groups_of_the_sink_have_no_lag_however_much_is_written(
    target: Target, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = Query(tmp_path / "checkpoint", topic=topic)
    with closing(sink_of(target.servers, query.checkpoint, transactional_id=topic)) as sink:
        for batch_id in range(4):
            query.run(sink, batch_id, [f"{batch_id}-{n}" for n in range(5 * batch_id + 1)])
            assert is_soon_free(target.servers, topic)
            assert lag(target.servers, note_group(topic)) == {f"{topic}-0": 0}
    assert main(["group", "describe", note_group(topic), "--bootstrap", target.servers, "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert [p["lag_to_high_watermark"] for p in described["partitions"]] == [0]


def test_the_note_of_a_token_has_no_lag_until_the_next_write_to_its_partition(
    target: Target, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(tmp_path / "checkpoint", topic=topic)
    monkeypatch.setattr(
        "fencepost.spark.driver.batch_transaction.BatchTransaction.write",
        lambda transaction, frame, topic=None: write_values(frame, transaction),
    )
    with closing(sink_of(target.servers, query.checkpoint, transactional_id=topic)) as sink:
        assert sink.write(query.frame(["a", "b"]), topic, token="today") == 2
        assert is_soon_free(target.servers, topic)
        assert lag(target.servers, token_group(topic, "today")) == {f"{topic}-0": 0}
        assert sink.write(query.frame([str(n) for n in range(30)]), topic, token="tomorrow") == 30
        assert is_soon_free(target.servers, topic)
        assert lag(target.servers, token_group(topic, "tomorrow")) == {f"{topic}-0": 0}
        # As the deployment guide says: a note about a token stays where it is.
        assert lag(target.servers, token_group(topic, "today"))[f"{topic}-0"] > 0


def test_a_pipeline_of_an_older_version_that_died_after_its_commit_is_continued(
    target: Target, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(tmp_path / "checkpoint", topic=topic)
    with (
        monkeypatch.context() as older,
        closing(sink_of(target.servers, query.checkpoint, transactional_id=topic)) as sink,
    ):
        for batch_id in range(2):
            # The number of the micro-batch was the offset of its note.
            older.setattr(owner, "note_offsets", lambda client, topics, written, n=batch_id: dict.fromkeys(topics, n))
            query.run(sink, batch_id, [f"{batch_id}-{n}" for n in range(5)])
    with KafkaClient({"bootstrap.servers": target.servers}) as client:
        [(offset, text)] = all_committed_offsets(client, note_group(topic)).values()
    assert (offset, json.loads(text)["batch"]) == (1, 1)

    # Killed between EndTxn and Spark's commit log: Spark runs micro-batch 1 again.
    query.restart()
    with closing(sink_of(target.servers, query.checkpoint, transactional_id=topic)) as successor:
        assert query.run(successor, 1, [f"1-{n}" for n in range(5)]) == "skipped"
        assert query.run(successor, 2, ["2-0"]) == "committed"
    assert is_soon_free(target.servers, topic)
    assert values(target.servers, topic) == sorted([*(f"{b}-{n}" for b in range(2) for n in range(5)), "2-0"])
    assert lag(target.servers, note_group(topic)) == {f"{topic}-0": 0}
