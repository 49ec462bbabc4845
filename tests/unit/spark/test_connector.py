"""Where the jars of Spark's Kafka connector come from."""

from __future__ import annotations

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
