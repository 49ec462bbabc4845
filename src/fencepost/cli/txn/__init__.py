"""`fencepost txn`: which transactions there are, which of them readers wait for and why, and how to end one.

`ids.py` has the commands about transactional ids, `partitions.py` those about partitions, `orders.py` those that change
something. `text.py` formats their documents as text.
"""

from __future__ import annotations

import click

from fencepost.cli.groups import HelpfulGroup
from fencepost.cli.txn import ids, orders, partitions


@click.group(cls=HelpfulGroup)
def txn() -> None:
    """Explain the transactions of any Kafka cluster

    Works on Fencepost and on Apache Kafka. Exit codes: 0 no problem was found, 1 a problem was found, an order was
    refused, or what was asked for does not exist, 2 wrong arguments, 3 the cluster could not be reached or did not
    answer in full.

    \b
    Example:
        export FENCEPOST_BOOTSTRAP=localhost:9092
        fencepost txn lso
        fencepost txn explain orders-sink-3
    """


for _command in (
    *(ids.list_, ids.describe, ids.history, ids.explain),
    *(partitions.producers, partitions.lso, partitions.hanging),
    *(orders.fence, orders.abort),
):
    txn.add_command(_command)
