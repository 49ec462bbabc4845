"""Kafka's Java library for `fencepost verify cluster`."""

from __future__ import annotations

import pytest

from tests.engines.java import java_home, kafka_jars, why_no_compiler


@pytest.fixture
def java_clients(monkeypatch: pytest.MonkeyPatch) -> str:
    """The value of --java-clients; JAVA_HOME is set too. Skips the test without Java."""
    if reason := why_no_compiler():
        pytest.skip(reason)
    monkeypatch.setenv("JAVA_HOME", str(java_home()))
    return str(kafka_jars())
