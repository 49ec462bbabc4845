"""The sink and Apache Kafka with ACLs: the permissions of the guide suffice, and each that is missing is reported."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fencepost.spark import AccessDenied, check
from fencepost.spark.sink import ExactlyOnceSink
from tests.e2e.spark.streams import PLANE, Lines, create_topic, is_soon_free, run, stream, values, written
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


def copy(spark: Any, names: Names, sink: ExactlyOnceSink, settings: dict[str, object], checkpoint: Path) -> None:
    """One run of a query from the source to the output."""
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
    run(source.load().select("value"), sink, checkpoint)


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


def produce(kafka: GuardedKafka, topic: str, texts: list[str]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for text in texts:
        producer.produce(topic, text)
    producer.flush(10)


def test_all_missing_permissions_are_in_one_message(spark: Any, kafka: GuardedKafka, names: Names) -> None:
    sink = ExactlyOnceSink(names.settings(kafka) | {"topic": names.output})
    with pytest.raises(AccessDenied) as denied:
        sink.write(spark.range(3).selectExpr("cast(id AS string) AS value"), token="t")
    assert "lacks 5 permissions of the sink" in str(denied.value)
    assert str(denied.value).count("kafka-acls ") == 4


@pytest.mark.usefixtures("plane")
def test_a_topic_that_only_a_row_names_is_denied_by_name(
    spark: Any, kafka: GuardedKafka, names: Names, tmp_path: Path
) -> None:
    needed = grants(names, {"always", "group"})
    write, read = (Grant("topic", names.output, operation) for operation in ("Write", "Read"))
    kafka.grant(*needed)
    lines = Lines(tmp_path / "lines")
    lines.add_batch()
    rows = stream(spark, lines).selectExpr("value", f"'{names.output}' AS topic")
    for missing, said in (([write], "Write"), ([read], "Read"), ([write, read], "Write")):
        kafka.revoke(*missing)
        sink = ExactlyOnceSink(names.settings(kafka))
        try:
            with pytest.raises(Exception, match="AccessDenied") as failed:
                run(rows, sink, tmp_path / f"checkpoint-{len(missing)}-{said}")
        finally:
            sink.close()
            kafka.grant(*missing)
        assert f"lacks a permission of the sink: {said} on topic {names.output}" in str(failed.value)
        assert written(kafka.bootstrap_servers, names.output) == 0
    kafka.revoke(*needed)


def test_a_permission_that_is_taken_away_from_a_running_sink_is_named(
    spark: Any, kafka: GuardedKafka, names: Names
) -> None:
    needed = grants(names, {"always", "token"})
    kafka.grant(*needed)
    frame = spark.range(3).selectExpr("cast(id AS string) AS value")
    sink = ExactlyOnceSink(names.settings(kafka) | {"topic": names.output})
    try:
        assert sink.write(frame, token="first") == 3
        for operation in ("Read", "Write"):
            gone = Grant("topic", names.output, operation)
            kafka.revoke(gone)
            with pytest.raises(AccessDenied, match=f"lacks a permission of the sink: {operation} on topic"):
                sink.write(frame, token=operation)
            kafka.grant(gone)
        assert sink.write(frame, token="last") == 3
    finally:
        sink.close()
    assert len(values(kafka.bootstrap_servers, names.output)) == 6
    kafka.revoke(*needed)


def test_a_pipeline_without_permissions_does_not_fence_one_that_has_them(
    spark: Any, kafka: GuardedKafka, names: Names
) -> None:
    needed = grants(names, {"always", "token"})
    frame = spark.range(3).selectExpr("cast(id AS string) AS value")
    admin = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": names.id, "topic": names.output}
    first = ExactlyOnceSink(admin)
    denied = ExactlyOnceSink(names.settings(kafka) | {"topic": names.output})
    try:
        assert first.write(frame) == 3
        kafka.grant(*(grant for grant in needed if grant.resource == "transactional-id"))
        with pytest.raises(AccessDenied):
            denied.write(frame)
        assert first.write(frame) == 3
    finally:
        first.close()
        denied.close()


def test_a_check_names_the_missing_permissions_and_takes_nothing_over(kafka: GuardedKafka, names: Names) -> None:
    needed = grants(names, {"always", "group"})
    kafka.grant(*needed)
    settings = names.settings(kafka) | {"topic": names.output}
    granted = check(None, settings, source_topics=[names.source])
    assert granted.is_ok, str(granted)
    for grant in needed:
        kafka.revoke(grant)
        report = check(None, settings, source_topics=[names.source])
        kafka.grant(grant)
        [finding] = [finding for finding in report.findings if finding.status == "problem"]
        said = f"lacks a permission of the sink: {grant.operation} on {grant.resource} {grant.name}."
        assert said in finding.text
        assert finding.hint is not None
        assert "kafka-acls" in finding.hint
    kafka.revoke(*needed)
