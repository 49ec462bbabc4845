"""The sink and Apache Kafka with ACLs: the permissions of the guide suffice, and each that is missing is reported."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fencepost.client.admin.offsets import all_committed_offsets
from fencepost.client.client import KafkaClient
from fencepost.spark.sink import ExactlyOnceSink
from tests.e2e.spark.streams import (
    PLANE,
    Rows,
    await_held,
    create_topic,
    held_in_the_middle,
    hold,
    is_free,
    is_soon_free,
    release,
    run,
    values,
    written,
)
from tests.engines.acls import Grant, GuardedKafka, guarded_kafka

pytestmark = [pytest.mark.java, pytest.mark.engines]
GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "spark-deployment.md"


class Names(NamedTuple):
    """The words that stand for a name in the guide's table."""

    output: str
    source: str
    id: str
    group: str

    def settings(self, kafka: GuardedKafka) -> dict[str, object]:
        mine = {"transactional.id": self.id, "group.id": self.group, "fencepost.plane": PLANE.get()}
        return {**kafka.settings(), **mine}


def guides_table() -> list[tuple[str, str, str, str]]:
    """The rows of the guide: the resource, its name, the operation, and when it is needed."""
    text = GUIDE.read_text().partition("## Permissions")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `--([a-z-]+)(?: ([^`]+))?` \| (\w+) \| (\w+) \|", text, re.MULTILINE)
    assert len(rows) == 8, "the table has another form than this test expects"
    return rows


def grants(names: Names, when: set[str]) -> list[Grant]:
    found = []
    for resource, name, operation, needed in guides_table():
        for word, meant in {"OUTPUT": names.output, "SOURCE": names.source, "GROUP": names.group}.items():
            name = meant if name == word else name
        name = name.replace("ID", names.id)
        pattern = "literal"
        if name.endswith(" --resource-pattern-type prefixed"):
            name, pattern = name.removesuffix(" --resource-pattern-type prefixed"), "prefixed"
        if needed in when:
            found.append(Grant(resource, name or "kafka-cluster", operation, pattern))
    return found


@pytest.fixture(scope="module")
def kafka() -> Iterator[GuardedKafka]:
    with guarded_kafka() as kafka:
        yield kafka


@pytest.fixture
def names(kafka: GuardedKafka, unique: Callable[[str], str]) -> Names:
    names = Names(*(unique(word) for word in ("output", "source", "id", "group")))
    create_topic(kafka.bootstrap_servers, names.output)
    create_topic(kafka.bootstrap_servers, names.source)
    return names


def copy(
    spark: Any,
    names: Names,
    sink: ExactlyOnceSink,
    settings: dict[str, object],
    checkpoint: Path,
    through: Rows | None = None,
) -> None:
    """One run of a query from the source to the output. through: for mapInArrow."""
    source = spark.readStream.format("kafka").option("subscribe", names.source).option("startingOffsets", "earliest")
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    login = {
        "bootstrap.servers": settings["bootstrap.servers"],
        "security.protocol": settings["security.protocol"],
        "sasl.mechanism": settings["sasl.mechanism"],
        "sasl.jaas.config": f'{jaas} username="{settings["sasl.username"]}" password="{settings["sasl.password"]}";',
    }
    for name, value in login.items():
        source = source.option(f"kafka.{name}", str(value))
    rows = source.load().select("value")
    run(rows if through is None else rows.mapInArrow(through, rows.schema), sink, checkpoint)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("plane")
def test_exactly_the_permissions_of_the_guide_suffice_and_each_that_is_missing_is_named_before_a_record_is_written(
    spark: Any, kafka_source: Any, kafka: GuardedKafka, names: Names, tmp_path: Path
) -> None:
    needed = grants(names, {"always", "group"})
    kafka.grant(*needed)
    produce(kafka, names.source, ["a", "b", "c"])
    settings = names.settings(kafka) | {"topic": names.output}
    for number, grant in enumerate(needed):
        kafka.revoke(grant)
        sink = ExactlyOnceSink(settings)
        is_of_source = grant == Grant("topic", names.source, "Read")
        try:
            with pytest.raises(Exception, match=r"AccessDenied|TopicAuthorization") as failed:
                copy(spark, names, sink, settings, tmp_path / f"checkpoint-{number}")
        finally:
            sink.close()
            kafka.grant(grant)
        assert written(kafka.bootstrap_servers, names.output) == 0
        if is_of_source:
            continue  # Spark's own source fails first.
        said = str(failed.value)
        assert f"User:alice lacks a permission of the sink: {grant.operation} on {grant.resource} {grant.name}" in said
        option = f"--allow-principal User:alice --operation {grant.operation} --{grant.resource} {grant.name}"
        assert option in said
    sink = ExactlyOnceSink(settings)
    try:
        copy(spark, names, sink, settings, tmp_path / "checkpoint")
    finally:
        sink.close()
    assert values(kafka.bootstrap_servers, names.output) == ["a", "b", "c"]
    assert is_soon_free(kafka.bootstrap_servers, names.output)
    assert kafka.grants() >= set(needed)
    kafka.revoke(*needed)


def produce(kafka: GuardedKafka, topic: str, texts: list[str], *, spread: bool = False) -> None:
    """spread: the first text to partition 0, and so on."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for index, text in enumerate(texts):
        producer.produce(topic, text, partition=index if spread else -1)
    producer.flush(10)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("plane")
@pytest.mark.parametrize("which", range(5), ids=["id", "notes", "output Write", "output Read", "group"])
def test_a_permission_that_is_revoked_in_the_middle_of_a_micro_batch_is_named_and_nothing_is_lost_or_doubled(
    spark: Any, kafka_source: Any, kafka: GuardedKafka, names: Names, tmp_path: Path, which: int
) -> None:
    needed = grants(names, {"always", "group"})
    gone = [
        Grant("transactional-id", names.id, "Write"),
        Grant("group", f"fencepost-marker-{names.id}", "Read", "literal"),
        Grant("topic", names.output, "Write"),
        Grant("topic", names.output, "Read"),
        Grant("group", names.group, "Read"),
    ][which]
    kafka.grant(*needed)
    settings = names.settings(kafka) | {"topic": names.output}
    held = tmp_path / "held"

    def run_once() -> None:
        sink = ExactlyOnceSink(settings)
        try:
            copy(spark, names, sink, settings, tmp_path / "checkpoint", held_in_the_middle(held))
        finally:
            sink.close()

    produce(kafka, names.source, ["a", "b"], spread=True)
    run_once()
    produce(kafka, names.source, ["c", "d"], spread=True)
    hold(held)
    with ThreadPoolExecutor(1) as other:
        running = other.submit(run_once)
        await_held(held, kafka.bootstrap_servers, names.output)
        kafka.revoke(gone)
        release(held)
        with pytest.raises(Exception, match="AccessDenied") as failed:
            running.result(120)
    lacks = f"lacks a permission of the sink: {gone.operation} on {gone.resource} {gone.name}. Nothing is committed"
    assert lacks in str(failed.value)
    if gone.resource == "transactional-id":
        # Nor may the sink abort the transaction, so readers wait until it is started again, or the timeout has passed.
        assert not is_free(kafka.bootstrap_servers, names.output)
    else:
        assert values(kafka.bootstrap_servers, names.output) == ["a", "b"]
    kafka.grant(gone)
    run_once()
    assert values(kafka.bootstrap_servers, names.output) == ["a", "b", "c", "d"]
    assert is_soon_free(kafka.bootstrap_servers, names.output)
    with KafkaClient({"bootstrap.servers": kafka.bootstrap_servers}) as client:
        moved = all_committed_offsets(client, names.group)
    assert [moved[names.source, partition][0] for partition in range(3)] == [2, 2, 0]
    kafka.revoke(*needed)
