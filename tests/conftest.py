"""Which tests may run side by side with `--dist loadfile`, and in which order.

The tests of a file share what it starts, and some files share more:

- The tests of the sink share two Sparks. Those that start their own run beside them.
- Most questions to Apache Kafka share one broker, the fixture `oracle`; what has to work on every Kafka shares another,
  the fixture `apache`. An idle broker takes a thirtieth of a core.
- The tests of the workbench share one browser.

What takes longest begins first, so that no worker is left with a long file when the others are done.

Property tests play the same examples in every run, so that a run says something about the code and not about luck.
`--hypothesis-profile search` plays new ones; `make search` does so for a while.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling, Scheduling

# Nothing that depends on the time: a busy machine is no failure.
timeless = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", timeless, derandomize=True)
settings.register_profile("search", timeless, derandomize=False, print_blob=True)
settings.load_profile("repeatable")

OWN_SPARKS = ("tests/e2e/spark/test_check_interrupts.py", "tests/e2e/spark/test_cluster.py")
TOGETHER = {
    # Those that need no Apache Kafka.
    "second spark": tuple(
        f"tests/e2e/spark/test_{name}.py"
        for name in ("broken_batches", "check", "checkpoint", "cut_connections", "guide", "sink_failures", "status")
    ),
    **{file: (file,) for file in OWN_SPARKS},
    "spark": ("tests/e2e/spark/",),
    "operating": ("tests/e2e/operating/",),
    "apache": (
        "tests/e2e/test_client.py",
        "tests/e2e/test_client_security.py",
        "tests/e2e/test_encoded_batches.py",
        "tests/e2e/test_late_end_txn.py",
        "tests/e2e/test_salvage.py",
        "tests/e2e/test_sink_note_lag.py",
        "tests/e2e/verify/test_jepsen.py",
        "tests/e2e/web/test_txn_page.py",
    ),
    "browser": ("tests/browser/",),
    "oracle": tuple(
        f"tests/conformance/test_{name}.py"
        for name in ("checks", "groups", "placements", "replies", "sequences", "single_requests", "walks")
    ),
}
LONGEST_FIRST = (
    "spark",
    "second spark",
    "tests/e2e/test_crashes.py",
    "tests/e2e/test_refunds.py",
    "browser",
    "tests/e2e/test_recovery.py",
    "operating",
    "tests/e2e/test_guides.py",
    "tests/e2e/test_demos.py",
    "tests/e2e/clients/test_transactions.py",
    "apache",
    "oracle",
    "tests/e2e/clients/test_java.py",
    *OWN_SPARKS,
    "tests/e2e/test_sink_ownership.py",
    "tests/e2e/verify/test_pipeline.py",
    "tests/e2e/test_txn_tools.py",
    "tests/e2e/verify/test_java_clients.py",
    "tests/e2e/verify/test_cluster.py",
    "tests/e2e/test_retention.py",
    "tests/e2e/verify/test_logins.py",
    # Of the fast tests.
    "tests/simulation/test_simulation.py",
    "tests/properties/test_messages.py",
    "tests/unit/spark/jvm/test_lease_client.py",
    "tests/unit/test_docs.py",
    "tests/properties/test_txn_rules.py",
    "tests/unit/spark/jvm/test_jar.py",
    "tests/properties/test_frames.py",
)


def scope_of(nodeid: str) -> str:
    """The tests of a scope run in one process, one after the other."""
    file = nodeid.partition("::")[0]
    return next((scope for scope, files in TOGETHER.items() if file.startswith(files)), file)


def rank(item: pytest.Item) -> int:
    scope = scope_of(item.nodeid)
    return LONGEST_FIRST.index(scope) if scope in LONGEST_FIRST else len(LONGEST_FIRST)


class ByScope(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    if config.getvalue("dist") != "loadfile":
        return None
    # Not by the number of tests in a scope, which says little about its time.
    config.option.loadscopereorder = False
    return ByScope(config, log)
