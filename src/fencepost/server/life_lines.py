"""The broker's log lines about its start and its stop."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fencepost import __version__
from fencepost.broker.cluster import BrokerAddress, Cluster
from fencepost.broker.config import Config, setting_of
from fencepost.broker.listeners import PLAINTEXT, format_address
from fencepost.counting import counted
from fencepost.machines.txn.states import IDLE

if TYPE_CHECKING:
    from fencepost.server.doors import Door


def starting_line(data: str | None) -> str:
    where = "in memory" if data is None else f"in {os.path.abspath(data)}"
    return f"fencepost {__version__} starts as process {os.getpid()}, data {where}"


def settings_line(config: Config) -> str:
    """The settings that are not defaults, without the secrets among them."""
    changed = []
    for name, value in sorted(config.given.items()):
        setting = setting_of(name)
        assert setting is not None
        if value != setting.default:
            shown = "[hidden]" if setting.kind == "password" else value
            changed.append(f"{name}={str(shown).lower() if isinstance(value, bool) else shown}")
    return f"settings: {', '.join(changed)}" if changed else "settings: all have their defaults"


def ready_text(doors: Sequence[Door], clusters: Sequence[Cluster], took_ms: int) -> str:
    text = f"listens on {' and '.join(_addresses_of(door) for door in doors)}"
    topics = counted(len(clusters[0].topics), "topic")
    return f"{text}; ready after {took_ms} ms with {topics} and {_open_txns(clusters)}"


def stopped_text(data: str | None, clusters: Sequence[Cluster], connections: int, took_ms: int) -> str:
    closed = f"{counted(connections, 'connection')} closed"
    if data is None:
        return f"stopped after {took_ms} ms: {closed}; the data was in memory and is gone"
    from fencepost.server.storage.last_stop import CLEAN_NAME

    if not os.path.exists(os.path.join(data, CLEAN_NAME)):
        return f"stopped after {took_ms} ms, but not cleanly: {closed}; the next start recovers the data"
    saved = counted(sum(topic.partition_count for topic in clusters[0].topics.values()), "partition")
    return f"stopped cleanly after {took_ms} ms: {closed}, {saved} saved; {_open_txns(clusters)}"


def _addresses_of(door: Door) -> str:
    text = _addresses(door.listens_on)
    labels = dict.fromkeys((door.endpoint.name, door.endpoint.protocol))
    if list(labels) != [PLAINTEXT]:
        text += f" ({', '.join(labels)})"
    if door.listens_on != door.given_to_clients:
        text += f", clients are given {_addresses(door.given_to_clients)}"
    return text


def _addresses(brokers: Sequence[BrokerAddress]) -> str:
    return ", ".join(format_address(broker.host, broker.port) for broker in brokers)


def _open_txns(clusters: Sequence[Cluster]) -> str:
    txns = (txn for cluster in clusters for txn in cluster.txns.all_txns())
    return counted(sum(txn.state not in IDLE for txn in txns), "open transaction")
