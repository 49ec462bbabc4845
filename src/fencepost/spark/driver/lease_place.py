"""Where the lease service listens, and the name under which executors find it."""

from __future__ import annotations

from typing import Any

from fencepost.spark.lease.port import without_brackets
from fencepost.spark.lease.server import LeaseServer
from fencepost.spark.lease.tls import make_tls
from fencepost.spark.settings import SinkSettings

HOST, BIND = "spark.driver.host", "spark.driver.bindAddress"
LOOPBACK = "127.0.0.1"


def lease_place(settings: SinkSettings, spark_host: str | None, spark_bind: str | None) -> tuple[str, str]:
    """The name for executors, and the address to listen on: by default the same as for Spark's own driver port."""
    host = settings.lease_host or spark_host or LOOPBACK
    bind = settings.lease_bind or spark_bind or spark_host or host
    return without_brackets(host), without_brackets(bind)


def start_lease_server(settings: SinkSettings, session: Any) -> LeaseServer:
    """Raises LeasePortTaken, and BadClientSetting if it cannot have TLS."""
    host, bind = lease_place(settings, session.conf.get(HOST, None), session.conf.get(BIND, None))
    tls = make_tls() if settings.lease_tls else None
    return LeaseServer(host, bind_host=bind, ports=settings.lease_ports, tls=tls).start()
