"""`/`: the cluster at a glance, what is wrong with it, and how many transactions end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError
from fencepost.commands import for_cluster
from fencepost.diagnose.collect.doctor import collect_doctor
from fencepost.diagnose.collect.overview import EndsWatch, collect_overview
from fencepost.diagnose.doctor.findings import DoctorSnapshot
from fencepost.diagnose.doctor.report import diagnose_doctor
from fencepost.diagnose.overview import OverviewSnapshot, Rates, diagnose_overview
from fencepost.diagnose.words import plain
from fencepost.web.cluster import WatchedCluster
from fencepost.web.page import Page, Params

T = TypeVar("T")
# `doctor` reads all of `__transaction_state`, so it looks less often than the page.
DOCTOR_EVERY_S = 15.0
# A little more often than the page asks, so that each document has a new sample.
RATES_EVERY_S = 0.8


def overview_document(
    snapshot: OverviewSnapshot,
    doctor: DoctorSnapshot | str | None,
    rates: Rates | str | None,
    arguments: tuple[str, ...] = (),
) -> dict[str, Any]:
    """`doctor` and `rates`: their last result, None while there is none, or why there is none.

    `arguments` are the options that commands need to reach the cluster.
    """
    document: dict[str, Any] = plain(for_cluster(diagnose_overview(snapshot), arguments))
    document["doctor"] = (
        plain(for_cluster(diagnose_doctor(doctor), arguments)) if isinstance(doctor, DoctorSnapshot) else None
    )
    document["doctor_problem"] = doctor if isinstance(doctor, str) else None
    document["rates"] = rates.document() if isinstance(rates, Rates) else None
    document["rates_problem"] = rates if isinstance(rates, str) else None
    return document


def ask(cluster: WatchedCluster, params: Params, query: Mapping[str, str]) -> dict[str, Any]:
    # First of all, so that a reader does not wait for what takes longer.
    snapshot = cluster.recent(collect_overview)
    rates = _known(cluster, cluster.own(EndsWatch).look, RATES_EVERY_S)
    doctor = _known(cluster, collect_doctor, DOCTOR_EVERY_S)
    return overview_document(snapshot, doctor, rates, cluster.arguments)


def _known(cluster: WatchedCluster, collect: Callable[[KafkaClient], T], every_s: float) -> T | str | None:
    """The last result, or why there is none: for example, the user may not read `__transaction_state`."""
    try:
        return cluster.in_background(collect, every_s)
    except ClientError as e:
        return str(e)


PAGE = Page(path="/", script="overview.js", title="Overview", nav="Overview", ask=ask)
