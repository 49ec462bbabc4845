"""One Apache Kafka for all questions that do not need settings of their own: names keep them apart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.test_against_apache_kafka import QUICK, ApacheTarget
from tests.engines.apache_kafka import apache_kafka


@pytest.fixture(scope="session")
def oracle() -> Iterator[ApacheTarget]:
    # It is never restarted, so it need not be quick to miss itself.
    settings = QUICK | {"broker.session.timeout.ms": "30000", "group.min.session.timeout.ms": "500"}
    with apache_kafka(settings) as kafka:
        yield ApacheTarget(kafka)
