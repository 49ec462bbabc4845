"""`fencepost verify`: looks for what exactly-once forbids. A module for each command; `check.py` writes all reports."""

from __future__ import annotations

import click

from fencepost.cli.groups import HelpfulGroup
from fencepost.cli.verify.check import check
from fencepost.cli.verify.cluster import cluster
from fencepost.cli.verify.pipeline import pipeline


@click.group(cls=HelpfulGroup)
def verify() -> None:
    """Look for what exactly-once forbids

    A run is noted as a history: everything that clients sent, were answered, and read. Checkers search it for lost and
    doubled records, torn transactions, aborted reads and others. Exit codes: 0 no anomaly, 1 anomalies were found.

    \b
    Example:
        fencepost verify cluster --bootstrap localhost:9092
        fencepost verify check history.jsonl --html report.html
        fencepost verify pipeline --input orders --output payments --group tills -- python service.py
    """


verify.add_command(check)
verify.add_command(cluster)
verify.add_command(pipeline)
