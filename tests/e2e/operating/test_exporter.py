"""`fencepost exporter` beside Fencepost and beside Apache Kafka: the same scenario, the same metrics."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from fencepost.diagnose.exporter.families import PREFIX
from tests.command_line import closed_pipe, run_fencepost, start_fencepost
from tests.e2e.operating.conftest import Run
from tests.examples import hang
from tests.readers.reading import TIMEOUT_S

MONITORING = Path(__file__).parents[3] / "docs" / "guides" / "monitoring"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
Unique = Callable[[str], str]


@contextmanager
def exporting(servers: str, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = start_fencepost("exporter", "--bootstrap", servers, "--listen", "127.0.0.1:0", "--every", "100ms", *more)
    try:
        assert process.stdout is not None
        word, url = process.stdout.readline().split()
        assert word == "ready"
        yield process, url
    finally:
        process.kill()
        process.communicate()


def test_an_exporter_outlives_the_reader_of_its_ready_line() -> None:
    arguments = ("--bootstrap", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--every", "100ms")
    with closed_pipe() as pipe, start_fencepost("exporter", *arguments, stdout=pipe) as process:
        try:
            assert process.stderr is not None
            # It runs: it complains about the cluster that it cannot reach.
            assert process.stderr.readline().startswith("warning: ")
            process.terminate()
            assert process.wait(TIMEOUT_S) == 0
        finally:
            process.kill()


@pytest.fixture(scope="module")
def url(servers: str) -> Iterator[str]:
    with exporting(servers) as (_, url):
        yield url


def get(url: str) -> tuple[int, str, str]:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
            return response.status, response.headers["Content-Type"], response.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.headers["Content-Type"], e.read().decode()


def scrape(url: str) -> Samples:
    status, kind, text = get(url)
    assert status == 200
    assert kind.startswith("text/plain")
    return {
        (sample.name.removeprefix(f"{PREFIX}_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape_until(url: str, holds: Callable[[Samples], bool]) -> Samples:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds(found := scrape(url)):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def register(servers: str, transactional_id: str) -> Producer:
    settings: dict[str, Any] = {"bootstrap.servers": servers, "transactional.id": transactional_id, "log_level": 0}
    producer = Producer(settings | {"transaction.timeout.ms": 600_000})
    producer.init_transactions(TIMEOUT_S)
    return producer


def test_an_open_and_a_hanging_transaction_are_seen_and_their_ends_too(
    servers: str, url: str, run: Run, unique: Unique
) -> None:
    topic, hung = unique("exported"), unique("hung")
    for name in (topic, hung):
        run("topic", "create", name)
    place, hung_place = (("partition", "0"), ("topic", topic)), (("partition", "0"), ("topic", hung))
    before = scrape_until(url, lambda found: found["up", ()] == 1)
    producer = register(servers, unique("exported-id"))
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(topic, b"waits", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    hang(servers, hung, unique("audit"))

    ongoing = "transactional_ids", (("state", "Ongoing"),)
    # The parts of one look at the cluster are of slightly different times.
    stuck = scrape_until(
        url,
        lambda found: (
            found.get(("partition_lso_gap_offsets", place)) == 3
            and found.get(("partition_lso_gap_offsets", hung_place)) == 1
            and ("hanging_transactions", hung_place) in found
            and found.get(ongoing) == before[ongoing] + 1
        ),
    )
    assert stuck["partition_lso_age_seconds", place] > 0
    assert stuck["hanging_transactions", hung_place] == 1
    assert stuck["open_transactions", ()] == before["open_transactions", ()] + 2
    assert stuck["oldest_open_transaction_age_seconds", ()] > 0
    by_partition = {
        name: sum(value for (found, _), value in stuck.items() if found == name)
        for name in ("transactional_ids", "coordinator_transactional_ids", "coordinator_open_transactions")
    }
    assert by_partition["coordinator_transactional_ids"] == by_partition["transactional_ids"]
    assert by_partition["coordinator_open_transactions"] == stuck[ongoing]

    producer.commit_transaction(TIMEOUT_S)
    assert run("txn", "abort", "--topic", hung, "--partition", "0", "--yes").exit_code == 0
    ended = scrape_until(
        url,
        lambda found: (
            found.get(("partition_lso_gap_offsets", place)) == 0 and ("hanging_transactions", hung_place) not in found
        ),
    )
    assert ended["partition_lso_age_seconds", place] == 0
    assert ended["unanswered_questions", ()] == 0


def test_a_producer_that_is_fenced_is_counted(servers: str, url: str, unique: Unique) -> None:
    id_ = unique("fought-for")
    first = register(servers, id_)
    # The look under way may have missed the registration; the one after it has not.
    await_looks(url, 2)
    before = scrape(url)["producer_fencings_total", ()]
    second = register(servers, id_)
    scrape_until(url, lambda found: found["producer_fencings_total", ()] == before + 1)
    del first, second


def await_looks(url: str, count: int) -> None:
    health = url.removesuffix("/metrics") + "/health"
    looked = json.loads(get(health)[2])["collections"]
    deadline = time.monotonic() + TIMEOUT_S
    while json.loads(get(health)[2])["collections"] < looked + count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_health_page_and_the_other_pages(url: str) -> None:
    scrape_until(url, lambda found: found["up", ()] == 1)
    root = url.removesuffix("/metrics")
    status, kind, text = get(f"{root}/health")
    assert (status, kind) == (200, "application/json")
    health = json.loads(text)
    assert (health["status"], health["cluster"], health["problem"]) == ("ok", "up", None)
    assert get(f"{root}/")[0] == 200
    assert get(f"{root}/nothing")[0] == 404


@pytest.mark.parametrize("name", ["exporter-alerts.yml", "exporter-dashboard.json", "../exporter.md"])
def test_what_the_guide_watches_is_there(url: str, name: str) -> None:
    found = scrape_until(url, lambda found: found["up", ()] == 1)
    # A family without a sample has its name in the help text.
    served = {f"{PREFIX}_{metric}" for metric, _ in found} | set(re.findall(rf"# HELP ({PREFIX}_\w+)", get(url)[2]))
    watched = set(re.findall(rf"{PREFIX}_\w+", (MONITORING / name).read_text()))
    assert watched
    assert watched <= served


# --- a cluster that does not answer -----------------------------------------------------------------------


def test_a_cluster_that_never_answers_does_not_delay_a_scrape_and_sigterm_ends_cleanly() -> None:
    patient = ("--set", "socket.connection.setup.timeout.ms=600000")
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,  # It accepts connections and says nothing.
        exporting(f"127.0.0.1:{mute.getsockname()[1]}", *patient) as (process, url),
    ):
        found = scrape(url)
        assert found["up", ()] == 0
        assert not [name for name, _ in found if name.startswith("partition")]
        health = json.loads(get(url.removesuffix("/metrics") + "/health")[2])
        # The first look at the cluster still waits.
        assert (health["status"], health["cluster"], health["collections"]) == ("ok", "down", 0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0


def test_a_cluster_that_cannot_be_reached_is_counted_and_said_once() -> None:
    with exporting("127.0.0.1:1") as (process, url):
        found = scrape_until(url, lambda found: found["collection_failures_total", ()] >= 2)
        assert found["up", ()] == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0
        assert process.stderr is not None
        said = process.stderr.read()
    assert said.count("warning: the cluster does not answer") == 1


def test_an_address_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_fencepost("exporter", "--bootstrap", "127.0.0.1:1", "--listen", address)
    assert done.returncode == 1
    assert f"error: cannot listen on {address}" in done.stderr
    assert "hint: choose another address with --listen" in done.stderr
