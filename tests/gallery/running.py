"""Runs a program under `fencepost verify pipeline`, and tells the kinds of anomalies that it is accused of."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from fencepost.client.admin.topics import create_topic
from fencepost.client.client import KafkaClient
from tests.command_line import run_fencepost

INPUT, OUTPUTS = "orders", ("payments", "audit")
PARTITIONS = 2


def program(name: str) -> list[str]:
    """The command of a program of the gallery."""
    return [sys.executable, "-m", f"tests.gallery.{name}", INPUT, *OUTPUTS]


def accused_of(
    bootstrap_servers: str,
    command: Iterable[str],
    *options: str | Path,
    outputs: Iterable[str] = OUTPUTS,
    timeout_s: float = 300,
) -> dict[str, int]:
    """How many anomalies of each kind the verifier finds."""
    with KafkaClient({"bootstrap.servers": bootstrap_servers}) as client:
        for topic in (INPUT, *outputs):
            if topic not in client.refresh([topic]):
                create_topic(client, topic, PARTITIONS, 1)
    ran = run_fencepost(
        *("verify", "pipeline", "--bootstrap", bootstrap_servers, "--input", INPUT, "--output", ",".join(outputs)),
        *("--settle", "10s", "--hung-after", "60s", "--json", *options, "--", *command),
        timeout_s=timeout_s,
    )
    print(ran.stderr)
    found = {kind["kind"]: kind["count"] for kind in json.loads(ran.stdout)["kinds"]} if ran.stdout else {}
    assert ran.returncode == (1 if found else 0), ran.stderr
    return found
