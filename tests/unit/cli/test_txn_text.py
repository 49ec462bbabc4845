"""The documents of `fencepost txn` as text: what the engineer on call sees and copies."""

from __future__ import annotations

from fencepost.cli.output import as_text
from fencepost.cli.txn import text
from fencepost.client.admin.answers import NamedPartition
from fencepost.diagnose.lso import diagnose_lso
from fencepost.diagnose.snapshot import Look
from tests.unit.diagnose.snapshots import NOW_MS, described, ends, producer


def test_lso_prints_the_command_for_each_transaction_that_readers_wait_for() -> None:
    places = {number: NamedPartition("orders", number) for number in range(5)}
    snapshot = Look(
        now_ms=NOW_MS,
        ends=dict.fromkeys(places.values(), ends(40, 90)),
        producers={where: (producer(40, producer_id=number),) for number, where in places.items()},
        txns={
            number: described(transactional_id=f"sink-{number}", producer_id=number, partitions=(where,))
            for number, where in places.items()
        },
    )
    shown = as_text(text.lso(diagnose_lso(snapshot)))
    assert [number for number in places if f"  fencepost txn explain sink-{number}" in shown] == list(places)
