"""Where the lease service listens by default: not on all addresses of the driver."""

from __future__ import annotations

import pytest

from fencepost.spark.driver.lease_place import lease_place
from fencepost.spark.settings import parse_sink_settings


@pytest.mark.parametrize(
    ("given", "spark_host", "spark_bind", "expected"),
    [
        ({}, "10.0.0.7", None, ("10.0.0.7", "10.0.0.7")),
        ({}, "driver-svc.ns.svc", "10.1.2.3", ("driver-svc.ns.svc", "10.1.2.3")),
        ({}, "[fd00::7]", None, ("fd00::7", "fd00::7")),
        ({"host": "gateway"}, "10.0.0.7", None, ("gateway", "10.0.0.7")),
        ({"host": "gateway"}, "10.0.0.7", "0.0.0.0", ("gateway", "0.0.0.0")),
        ({"bind": "0.0.0.0"}, "10.0.0.7", "10.0.0.8", ("10.0.0.7", "0.0.0.0")),
        ({"bind": "[::]"}, "10.0.0.7", None, ("10.0.0.7", "::")),
        ({}, None, None, ("127.0.0.1", "127.0.0.1")),
    ],
)
def test_it_listens_where_sparks_driver_does_unless_the_user_says_otherwise(
    given: dict[str, str], spark_host: str | None, spark_bind: str | None, expected: tuple[str, str]
) -> None:
    own = {f"fencepost.lease.{name}": value for name, value in given.items()}
    settings = parse_sink_settings({"bootstrap.servers": "kafka:9092", "transactional.id": "x-1", **own})
    assert lease_place(settings, spark_host, spark_bind) == expected
