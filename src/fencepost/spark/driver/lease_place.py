"""Where the lease service listens, the name under which executors find it, and whether it encrypts."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

from fencepost.client.settings import ClientSettings, parse_settings
from fencepost.spark.lease.port import without_brackets
from fencepost.spark.lease.server import LeaseServer
from fencepost.spark.lease.tls import make_tls
from fencepost.spark.settings import AUTO, FALSE, TRUE, SinkSettings

log = logging.getLogger("fencepost.spark")

HOST, BIND, MASTER = "spark.driver.host", "spark.driver.bindAddress", "spark.master"
LOOPBACK = "127.0.0.1"
# Spark's traffic between driver and executors. spark.authenticate alone encrypts nothing, and spark.io.encryption.*
# is about files on disks: Spark sends its key as it sends everything else.
SPARK_ENCRYPTS = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled", "spark.authenticate.enableSaslEncryption")
# One process, also as local[2], local[*] and local[2,3]. The executors of local-cluster[...] are processes.
_LOCAL = re.compile(r"local(\[[^\]]*\])?")
# A setting of Spark by its name; None if Spark does not have it, or does not show it.
Conf = Callable[[str], str | None]


def lease_place(settings: SinkSettings, spark_host: str | None, spark_bind: str | None) -> tuple[str, str]:
    """The name for executors, and the address to listen on: by default the same as for Spark's own driver port."""
    host = settings.lease_host or spark_host or LOOPBACK
    bind = settings.lease_bind or spark_bind or spark_host or host
    return without_brackets(host), without_brackets(bind)


def decide_tls(settings: SinkSettings, host: str, conf: Conf) -> tuple[bool, str | None]:
    """Whether the lease connection is encrypted, and a warning.

    host: the name for executors. auto encrypts if Spark encrypts its own traffic, or if Kafka's is encrypted or has a
    login. It does not if the driver and its tasks are on one machine, which the connection then never leaves.
    """
    client = parse_settings(settings.client)
    stays_here = _is_loopback(host) or _LOCAL.fullmatch(conf(MASTER) or "") is not None
    if settings.lease_tls == AUTO:
        spark_encrypts = any((conf(name) or "").strip().lower() == "true" for name in SPARK_ENCRYPTS)
        return not stays_here and (spark_encrypts or client.protocol != "PLAINTEXT"), None
    is_on, secret = settings.lease_tls == TRUE, _secret_of_tasks(client)
    if is_on or stays_here or secret is None:
        return is_on, None
    return False, (
        f"the driver sends tasks {secret} for Kafka over the lease port at {host} without encryption, because of "
        f"fencepost.lease.tls={FALSE}\n\nhint: leave the setting out, or let only machines that you trust into the "
        "network between driver and executors"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _secret_of_tasks(client: ClientSettings) -> str | None:
    """What the settings that tasks get tell a listener; None: nothing."""
    if client.sasl_mechanism is not None:
        return "a password" if client.oauth is None else "a token"
    has_key = client.tls.key_pem or client.tls.key_password or client.tls.keystore_password
    return "a key or its password" if has_key else None


def start_lease_server(settings: SinkSettings, session: Any) -> LeaseServer:
    """Raises LeasePortTaken, and BadClientSetting if it cannot have TLS."""

    def conf(name: str) -> str | None:
        found: str | None = session.conf.get(name, None)
        return found

    host, bind = lease_place(settings, conf(HOST), conf(BIND))
    has_tls, warning = decide_tls(settings, host, conf)
    if warning:
        log.warning("%s", warning)
    tls = make_tls() if has_tls else None
    return LeaseServer(host, bind_host=bind, ports=settings.lease_ports, tls=tls).start()
