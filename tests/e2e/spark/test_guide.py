"""The programs in the guide to the Spark sink, run one after another, as by a user who follows it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.e2e.conftest import StartBroker
from tests.e2e.spark.streams import create_topic, read

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[3]
GUIDE = ROOT / "docs" / "guides" / "spark.md"


class Reader:
    """A user who pastes the programs of the guide, each as if into a new process."""

    def __init__(self, spark: Any, servers: str, folder: Path) -> None:
        self._names: dict[str, Any] = {"spark": spark}
        self._servers, self._folder = servers, folder
        self.programs = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
        self._next = 0

    def adopts(self, query_id: str) -> None:
        """The user takes the id from the refusal, where the guide has an example."""
        self.programs = [re.sub(r'adopt="[0-9a-f-]+"', f'adopt="{query_id}"', text) for text in self.programs]

    def run(self, then: str = "") -> dict[str, Any]:
        """Run the next program until its query has nothing left to do; `then` runs at its end."""
        self._next += 1
        return self._run(self.programs[self._next - 1] + then, f"program {self._next} of {GUIDE.name}")

    def run_readme(self) -> None:
        """The lines for a Spark job, in a program that has imported PySpark and computed `refunds`."""
        from pyspark.sql import SparkSession

        _, section = (ROOT / "README.md").read_text().split("\n## Your Spark job\n")
        self._names["SparkSession"] = SparkSession
        self._run(section.partition("```python\n")[2].partition("```")[0], "README.md")

    def _run(self, text: str, source: str) -> dict[str, Any]:
        text = text.replace("kafka:9092", self._servers).replace("/checkpoints/", f"{self._folder}/")
        names = self._names
        names.pop("query", None)
        names.pop("sink", None)
        try:
            exec(compile(text, source, "exec"), names)
            if "query" in names:
                names["query"].processAllAvailable()
        finally:
            if "query" in names:
                names["query"].stop()
            if "sink" in names:
                names["sink"].close()
        return names


@pytest.fixture
def servers(start_broker: StartBroker) -> str:
    return start_broker().bootstrap_servers


@pytest.fixture
def numbers(servers: str) -> Callable[[int], None]:
    """Writes the given number of new settlements: s-0, s-1, ..."""
    for topic in ("settlements", "refunds-emitted", "refund-audit"):
        create_topic(servers, topic, 2)
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    written = 0

    def add(count: int) -> None:
        nonlocal written
        for number in range(written, written + count):
            producer.produce("settlements", f"settlement {number}", f"s-{number}")
        written += count
        assert producer.flush(30) == 0

    return add


def test_the_programs_of_the_guide(kafka_source: Any, servers: str, numbers: Any, tmp_path: Path) -> None:
    def keys(topic: str) -> Counter[str]:
        return Counter((record.key or b"").decode() for record in read(servers, topic))

    def settlements(count: int) -> Counter[str]:
        return Counter(f"s-{number}" for number in range(count))

    guide = Reader(kafka_source, servers, tmp_path)
    numbers(10)
    guide.run()  # With Spark's own sink.
    assert keys("refunds-emitted") == settlements(10)

    numbers(3)
    guide.run()  # With our format. The checkpoint is kept.
    assert keys("refunds-emitted") == settlements(13)
    numbers(2)
    guide.run_readme()  # The same.
    assert keys("refunds-emitted") == settlements(15)
    assert {(record.value or b"")[:10] for record in read(servers, "refunds-emitted")} == {b"SETTLEMENT"}

    numbers(5)
    guide.run()  # With foreachBatch, and the same transactional.id.
    assert keys("refunds-emitted") == settlements(20)

    numbers(10)
    guide.run()  # Two outputs.
    assert keys("refunds-emitted") == settlements(30)
    assert keys("refund-audit") == settlements(30) - settlements(20)

    numbers(10)
    guide.run()  # Two outputs with one write.
    assert keys("refunds-emitted") == settlements(40)
    assert keys("refund-audit") == settlements(40) - settlements(20)

    names = guide.run()
    assert (names["count"], names["again"]) == (1, 1)
    assert keys("refunds-emitted") == settlements(40) + Counter({"s-1": 1})
    guide.run()  # As a format, with another token.
    assert keys("refunds-emitted") == settlements(40) + Counter({"s-1": 2})

    guide.run(then="\nrun_until_it_ends()\n")  # A query with state, of its own.
    assert keys("refunds-emitted") == settlements(40) + Counter({"s-1": 2}) + settlements(40)

    numbers(5)
    sink = guide.run()["sink"]  # Monitoring.
    assert [batch.records for batch in sink.recent_progress] == [5]
    assert sink.metrics_port is not None

    numbers(5)
    guide.adopts(json.loads((tmp_path / "refunds" / "metadata").read_text())["id"])
    guide.run()  # The checkpoint is lost.
    assert keys("refunds-emitted") == settlements(50) + Counter({"s-1": 2}) + settlements(40)
    assert guide._next == len(guide.programs), "every program of the guide was run"
