"""Where the jars of Spark's Kafka connector come from, and what the documents say about it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from fencepost.spark import connector


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("spark-sql-kafka-0-10_2.13-4.0.0.jar", "kafka-clients-3.9.0.jar"):
        (tmp_path / name).touch()
    monkeypatch.setenv(connector.JARS_VARIABLE, str(tmp_path))
    jars = [tmp_path / "kafka-clients-3.9.0.jar", tmp_path / "spark-sql-kafka-0-10_2.13-4.0.0.jar"]
    assert connector.connector_jars() == jars
    assert connector.connector_conf() == {"spark.jars": f"{jars[0]},{jars[1]}"}


def test_a_named_folder_without_the_connector_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kafka-clients-3.9.0.jar").touch()
    monkeypatch.setenv(connector.JARS_VARIABLE, str(tmp_path))
    with pytest.raises(FileNotFoundError, match="FENCEPOST_SPARK_KAFKA_JARS"):
        connector.connector_jars()


def test_without_jars_spark_fetches_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(connector.JARS_VARIABLE, raising=False)
    monkeypatch.setattr(connector, "__file__", str(tmp_path / "a" / "b" / "c" / "connector.py"))
    assert connector.connector_jars() is None
    monkeypatch.setattr(connector, "version", lambda package: "4.0.5")
    assert connector.connector_conf() == {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"}


def test_the_connector_is_that_of_the_pyspark_which_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(connector.JARS_VARIABLE, raising=False)
    monkeypatch.setattr(connector, "version", lambda package: "4.2.1")
    # Jars of another version, as in a checkout, do not work.
    assert connector.connector_conf() == {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.1"}


ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("page", ["README.md", "docs/guides/spark.md"])
def test_the_tested_pair_stands_next_to_the_install_line(page: str) -> None:
    text = " ".join((ROOT / page).read_text().split())
    coordinates = f"org.apache.spark:{connector.CONNECTOR}:{connector.CONNECTOR_VERSION}"
    install = text.index("`spark-local`")
    assert f"PySpark {connector.TESTED_PYSPARK} with `{coordinates}` is tested" in text[install : install + 400]


def test_the_extra_with_pyspark_installs_the_line_that_the_connector_can_be_had_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert f"pyspark[connect]=={connector.TESTED_PYSPARK}" in project["dependency-groups"]["engines"]
    assert "pyspark>=4.0,<4.1" in project["project"]["optional-dependencies"]["spark-local"]
    assert connector.TESTED_PYSPARK.startswith("4.0.")
