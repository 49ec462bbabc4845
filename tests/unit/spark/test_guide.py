"""The tables of the Spark guide have the settings and the messages of the sink."""

from __future__ import annotations

import re
from pathlib import Path

from fencepost.spark.encode.record_batches import DEFAULT_MAX_RECORD_BATCH_BYTES
from fencepost.spark.settings import (
    DEFAULT_DELIVERY_TIMEOUT_MS,
    DEFAULT_TIMEOUT_MS,
    SINK_SETTINGS,
    SOURCE_PREFIX,
    parse_sink_settings,
)

ROOT = Path(__file__).resolve().parents[3]
GUIDE = (ROOT / "docs/guides/spark.md").read_text()


def table_after(heading: str) -> list[list[str]]:
    """The cells of the tables in a section, without their heads."""
    section = GUIDE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert rows, f"no table under {heading}"
    return rows


def test_the_settings_are_those_of_the_sink() -> None:
    rows = table_after("Settings")
    assert {name.strip("`"): text for name, _, text in rows} == SINK_SETTINGS


def test_the_defaults_are_those_of_the_sink() -> None:
    defaults = {name.strip("`"): default for name, default, _ in table_after("Settings")}
    settings = parse_sink_settings({"bootstrap.servers": "kafka:9092", "transactional.id": "t"})
    assert defaults["transaction.timeout.ms"] == str(settings.timeout_ms) == str(DEFAULT_TIMEOUT_MS)
    assert defaults["delivery.timeout.ms"] == str(DEFAULT_DELIVERY_TIMEOUT_MS)
    assert defaults["max.request.size"] == str(settings.max_record_batch_bytes) == str(DEFAULT_MAX_RECORD_BATCH_BYTES)
    assert defaults["compression.type"] == settings.compression
    assert defaults["fencepost.transaction.partition.verification.enable"] == str(settings.is_verified).lower()
    assert defaults["fencepost.lease.port"] == str(settings.lease_ports[0])
    assert defaults["fencepost.metrics.bind"] == settings.metrics_bind
    assert defaults["fencepost.plane"] == settings.plane
    absent = {
        "group.id": settings.group_id,
        "topic": settings.topic,
        "fencepost.offsets.retention.minutes": settings.retention_ms,
        "fencepost.checkpoint.location": settings.checkpoint_location,
        "fencepost.lease.host": settings.lease_host,
        "fencepost.lease.bind": settings.lease_bind,
        "fencepost.metrics.port": settings.metrics_port,
    }
    assert {name for name, default in defaults.items() if default == "(none)"} == absent.keys()
    assert set(absent.values()) == {None}


def test_every_setting_of_the_sink_in_the_deployment_guide_exists() -> None:
    text = (ROOT / "docs/guides/spark-deployment.md").read_text()
    named = {name.rstrip(".") for name in re.findall(r"\bfencepost\.[a-z.]+", text)}
    settings = {name for name in named if not name.startswith(("fencepost.spark", SOURCE_PREFIX))}
    assert {"fencepost.lease.port", "fencepost.lease.bind"} <= settings
    assert settings <= SINK_SETTINGS.keys()


def test_every_message_that_the_guide_explains_is_one_that_the_sink_has() -> None:
    files = [*(ROOT / "src/fencepost/spark").rglob("*.py"), *(ROOT / "src/fencepost/client").glob("*.py")]
    # Join strings that continue on the next line.
    source = re.sub(r'"\s*\n\s*f?"', "", "\n".join(path.read_text() for path in files))
    said = [row[0] for row in table_after("When the sink refuses")]
    explained = [fragment for cell in said for fragment in re.findall(r"`([^`]+)`", cell)]
    assert len(explained) > 12
    of_spark = {"DATA_SOURCE_NOT_FOUND", "fencepost"}
    assert [fragment for fragment in explained if fragment not in source and fragment not in of_spark] == []


def test_the_lines_of_the_readme_are_those_of_the_guide() -> None:
    _, section = (ROOT / "README.md").read_text().split("\n## Your Spark job\n")
    lines = section.partition("```python\n")[2].partition("```")[0].split("\n")
    plain = [line.partition("  #")[0] for line in lines]
    assert [line for line in plain if line not in GUIDE.split("\n")] == []
