"""Run the tests with real clients and Apache Kafka's tools, and write docs/compatibility.md from the results.

    scripts/compatibility.py            run, note the results in docs/compatibility.json, and write the page
    scripts/compatibility.py --page     write the page anew from the results of the last run
    scripts/compatibility.py --permissions      run only the comparison of permissions

Exit code 1 if a test failed; the page says which.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from fencepost.broker.api import APIS  # noqa: E402

RESULTS = ROOT / "docs/compatibility.json"
PAGE = ROOT / "docs/compatibility.md"
TESTS = ["tests/e2e/clients", "tests/e2e/test_kafka_tools.py"]
SCENARIOS = "test_transactions.py"
CLIENTS = {
    "confluent-kafka": "librdkafka; TV1",
    "java": "Apache Kafka's own client; TV2",
    "franz-go": "Go; TV2",
    "kafkajs": "Node; TV1",
    "aiokafka": "asyncio; TV1",
    "kafka-python": "pure Python; TV1",
}
FENCEPOST_ONLY = 10_000  # API keys from here on are our own.
WORDS = {"passed": "pass", "failed": "**FAIL**", "skipped": "skipped"}

Results = dict[str, Any]
Test = dict[str, Any]


# --- the run ----------------------------------------------------------------------------------------------


def run() -> Results:
    with tempfile.TemporaryDirectory() as folder:
        collected = Path(folder) / "tests.json"
        plugin = ["-p", "tests.e2e.clients.compatibility", "--compatibility", str(collected)]
        command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-m", "not engines", *plugin, *TESTS]
        subprocess.run(command, cwd=ROOT, check=False)
        tests = json.loads(collected.read_text())
    return {"apache_kafka": apache_kafka_versions(), "permissions": permissions(), "tests": tests}


def as_text(results: Results) -> str:
    """JSON with a line for each test and each API, so that a diff shows each change on its own line."""
    apache, tests = results["apache_kafka"], results["tests"]
    apis = ",\n".join(json.dumps(api) for api in apache["apis"])
    lines = ",\n".join(json.dumps(test) for test in tests)
    version = json.dumps(apache["version"])
    users, answers = (results["permissions"][part].items() for part in ("users", "answers"))
    users_text, answers_text = (
        ",\n".join(f"{json.dumps(name)}: {json.dumps(about)}" for name, about in part) for part in (users, answers)
    )
    return (
        f'{{"apache_kafka": {{"version": {version}, "apis": [\n{apis}\n]}},\n'
        f'"permissions": {{"users": {{\n{users_text}\n}}, "answers": {{\n{answers_text}\n}}}},\n'
        f'"tests": [\n{lines}\n]}}\n'
    )


def apache_kafka_versions() -> Results:
    """The APIs that a running Apache Kafka advertises; none if there is no Java to run it."""
    # These modules import pytest, which `--page` does not need.
    from tests.engines.apache_kafka import apache_kafka
    from tests.engines.java import KAFKA_VERSION, why_no_java

    if reason := why_no_java():
        print(f"note: Apache Kafka cannot be asked for its versions: {reason}", file=sys.stderr)
        return {"version": KAFKA_VERSION, "apis": []}
    with apache_kafka() as kafka:
        said = kafka.run_tool("kafka-broker-api-versions")
    found = re.findall(r"(\w+)\((\d+)\): (\d+)(?: to (\d+))? \[", said)
    apis = [{"key": int(key), "name": name, "versions": [int(low), int(high or low)]} for name, key, low, high in found]
    return {"version": KAFKA_VERSION, "apis": apis}


def permissions() -> Results:
    """The answers of Apache Kafka to users with different permissions. Raises AssertionError if ours are others."""
    from tests.conformance.permissions import USERS, Stage, collect, summary
    from tests.conformance.test_permissions import PureTarget, apache_stage, differences
    from tests.engines.java import why_no_java

    if reason := why_no_java():
        print(f"note: the permissions are those of the last run: {reason}", file=sys.stderr)
        return json.loads(RESULTS.read_text())["permissions"]  # type: ignore[no-any-return]
    with apache_stage() as stage:
        theirs = collect(stage)
    different = differences(collect(Stage(PureTarget())), theirs)
    assert not different, "\n".join(different)
    return {"users": {user: list(acls) for user, acls in USERS.items()}, "answers": summary(theirs)}


# --- the page ---------------------------------------------------------------------------------------------


def page(results: Results) -> str:
    tests = results["tests"]
    lines = [
        "# Compatibility",
        "",
        "Written by `make compat`, from the results of the tests with real clients and with Apache Kafka's own tools:",
        "nothing here is written by hand. Notes on single clients are in [clients.md](clients.md), the differences",
        "from Apache Kafka in [deviations.md](deviations.md).",
        "",
        *clients_table(tests),
        *scenarios_table(tests),
        *tools_table(tests),
        *apis_table(results["apache_kafka"]),
        *permissions_table(results),
        *client_tables(tests),
    ]
    return "\n".join(lines)


def clients_table(tests: list[Test]) -> list[str]:
    lines = ["## Clients", "", "| client | version | | pass | fail | skipped |", "|---|---|---|---|---|---|"]
    for client, about in CLIENTS.items():
        found = [test for test in tests if test["client"] == client]
        version = next((test["version"] for test in found if test["version"]), "not run")
        counts = [sum(test["result"] == result for test in found) for result in WORDS]
        lines.append(f"| {client} | {version} | {about} | {' | '.join(map(str, counts))} |")
    return [*lines, ""]


def scenarios_table(tests: list[Test]) -> list[str]:
    """The scenarios that run with every client, with the clients side by side."""
    lines = [
        "## Transactions",
        "",
        "The same scenarios with every client, from `tests/e2e/clients/test_transactions.py`; `make test-engines`",
        "plays them on Apache Kafka, too.",
        "",
        f"| scenario | {' | '.join(CLIENTS)} |",
        "|---|" + "---|" * len(CLIENTS),
    ]
    played = [test for test in tests if SCENARIOS in test["test"]]
    by_claim: dict[str, dict[str, str]] = {}
    for test in played:
        by_claim.setdefault(test["claim"], {})[test["client"]] = WORDS[test["result"]]
    for claim, outcomes in by_claim.items():
        lines.append(f"| {claim} | {' | '.join(outcomes.get(client, 'not run') for client in CLIENTS)} |")
    return [*lines, "", *reasons(played)]


def reasons(tests: Iterable[Test]) -> list[str]:
    skipped = sorted({f"- {test['client']}: {test['reason']}" for test in tests if test["reason"]})
    return ["Skipped because:", "", *skipped, ""] if skipped else []


def tools_table(tests: list[Test]) -> list[str]:
    lines = ["## Apache Kafka's tools", "", "| tool | what | result |", "|---|---|---|"]
    rows = [(tool, test) for test in tests for tool in test["tools"]]
    for tool, test in sorted(rows, key=lambda row: row[0]):
        lines.append(f"| {tool} | {test['claim']} | {outcome(test)} |")
    return [*lines, ""]


def client_tables(tests: list[Test]) -> list[str]:
    """The other tests of each client."""
    lines = []
    for client in CLIENTS:
        found = [test for test in tests if test["client"] == client and SCENARIOS not in test["test"]]
        if found:
            lines += [f"## What else {client} did", "", "| | result |", "|---|---|"]
            lines += [f"| {test['claim']} | {outcome(test)} |" for test in found]
            lines.append("")
    return lines


def outcome(test: Test) -> str:
    return f"{WORDS[test['result']]}: {test['reason']}" if test["reason"] else WORDS[test["result"]]


def apis_table(apache: Results) -> list[str]:
    """The APIs of the code as it is now, beside those that Apache Kafka advertises."""
    lines = [
        "## APIs",
        "",
        f"The versions that are served, and those that a running Apache Kafka {apache['version']} advertised.",
        "",
        f"| key | API | Fencepost | Apache Kafka {apache['version']} | |",
        "|---|---|---|---|---|",
    ]
    theirs = {api["key"]: tuple(api["versions"]) for api in apache["apis"]}
    names = {api["key"]: api["name"] for api in apache["apis"]} | {key: api.name for key, api in APIS.items()}
    for key in sorted(names):
        lines.append(f"| {key} | {names[key]} | {ours(key)} | {span(theirs.get(key))} | {difference(key, theirs)} |")
    return [*lines, ""]


def permissions_table(results: Results) -> list[str]:
    """Who gets which answer. Only the answers of Apache Kafka are here: a test checks that ours are the same."""
    users, answers = results["permissions"]["users"], results["permissions"]["answers"]
    version = results["apache_kafka"]["version"]
    count = sum(len(who.split(", ")) for rows in answers.values() for who, _ in rows)
    lines = [
        "## Permissions",
        "",
        f"The same users and ACLs on Fencepost and on a running Apache Kafka {version}, a request of every API from",
        f"each user: {count} answers, and all of them are the same on both (`tests/conformance/test_permissions.py`).",
        "An answer is the error of each resource that was asked for, and what the user may do with it in parentheses.",
        "",
        "| user | ACLs (`..` is a prefix, `@` a host) |",
        "|---|---|",
        *(f"| `{user}` | {', '.join(f'`{acl}`' for acl in acls) or 'none'} |" for user, acls in users.items()),
        "",
        "| request | answers |",
        "|---|---|",
    ]
    for request, rows in answers.items():
        cells = []
        for who, answer in rows:
            names = who.split(", ")
            shown = ", ".join(f"`{name}`" for name in names) if len(names) * 2 < len(users) else "the others"
            everything = answer.replace("*", r"\*")
            cells.append(f"{'all users' if len(names) == len(users) else shown}: {everything}")
        asked = {name for who, _ in rows for name in who.split(", ")}
        if left_out := [f"`{user}`" for user in users if user not in asked]:
            cells.append(f"not compared: {', '.join(left_out)}")
        lines.append(f"| {request} | {'<br>'.join(cells)} |")
    return [*lines, ""]


def ours(key: int) -> str:
    return span((APIS[key].first, APIS[key].last)) if key in APIS else "-"


def span(versions: tuple[int, ...] | None) -> str:
    if versions is None:
        return "-"
    first, last = versions
    return str(first) if first == last else f"{first}-{last}"


def difference(key: int, theirs: dict[int, tuple[int, ...]]) -> str:
    api = APIS.get(key)
    if api is None:
        return "not served"
    if key >= FENCEPOST_ONLY:
        return "our own"
    if key not in theirs:
        return "served when asked, not advertised" if not api.is_advertised else "only here"
    advertised = (api.advertised_first, api.last)
    if advertised != theirs[key]:
        return "differs"
    return f"advertised from {api.advertised_first} on, by both" if api.first != api.advertised_first else ""


def main() -> int:
    if "--permissions" in sys.argv[1:]:
        RESULTS.write_text(as_text(json.loads(RESULTS.read_text()) | {"permissions": permissions()}))
    elif "--page" not in sys.argv[1:]:
        RESULTS.write_text(as_text(run()))
    results = json.loads(RESULTS.read_text())
    PAGE.write_text(page(results))
    failed = [test["test"] for test in results["tests"] if test["result"] == "failed"]
    print(f"wrote {PAGE.relative_to(ROOT)}: {len(results['tests'])} tests, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
