"""What Prometheus reads from a broker, after real clients did known things to it."""

from __future__ import annotations

import re
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from prometheus_client.parser import text_string_to_metric_families

from fencepost import __version__
from tests.command_line import run_fencepost, start_fencepost

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(scope="module")
def addresses() -> Iterator[tuple[str, str]]:
    """A broker of its own, so that every number is known: where clients connect, and where the metrics are."""
    process = start_fencepost("broker", "--listen", "127.0.0.1:0", "--memory", "--metrics", "127.0.0.1:0")
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        servers = process.stdout.readline().split()[1]
        url = next(line.split()[-1] for line in process.stderr if " metrics at " in line)
        yield servers, url
    finally:
        process.terminate()
        process.communicate(timeout=30)


def scrape(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=30) as response:
        assert response.headers["Content-Type"].startswith("text/plain")
        families = text_string_to_metric_families(response.read().decode())
        return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def producer(servers: str, transactional_id: str) -> Producer:
    made = Producer(
        {"bootstrap.servers": servers, "transactional.id": transactional_id, "linger.ms": 0, "log_level": 0}
    )
    made.init_transactions(60)
    return made


def write(to: Producer, topic: str, count: int = 1) -> None:
    to.begin_transaction()
    for _ in range(count):
        to.produce(topic, b"x" * 1000)
    assert to.flush(60) == 0


def test_every_number_is_what_clients_did(addresses: tuple[str, str]) -> None:
    servers, url = addresses
    done, stuck = producer(servers, "done"), producer(servers, "stuck")
    for _ in range(3):
        write(done, "metered")
        done.commit_transaction(60)
    write(done, "metered")
    done.abort_transaction(60)
    write(stuck, "metered", count=5)
    found = scrape(url)
    place = (("partition", "0"), ("topic", "metered"))
    assert found["fencepost_transactions_ended_total", (("outcome", "commit"),)] == 3
    assert found["fencepost_transactions_ended_total", (("outcome", "abort"),)] == 1
    assert found["fencepost_transactions_open", ()] == 1
    assert found["fencepost_transaction_oldest_seconds", ()] > 0
    assert found["fencepost_transactional_ids", (("state", "Ongoing"),)] == 1
    assert found["fencepost_transactions_hanging", ()] == 0
    assert found["fencepost_lso_gap_offsets", place] == 5
    assert found["fencepost_lso_age_seconds", place] > 0
    assert found["fencepost_log_high_watermark", place] == 3 * 2 + 2 + 5  # Each end is a marker.
    assert 1000 < found["fencepost_log_aborted_bytes_total", place] < 2000
    assert found["fencepost_log_bytes", place] > 9000
    assert found["fencepost_request_duration_seconds_count", (("api", "EndTxn"),)] == 4
    assert found["fencepost_request_duration_seconds_bucket", (("api", "EndTxn"), ("le", "+Inf"))] == 4
    assert found["fencepost_received_bytes_total", ()] > 9000
    assert found["fencepost_connections", ()] >= 2
    assert sum(v for (name, _), v in found.items() if name == "fencepost_coordinator_transactional_ids") == 2

    # A second producer with the same id fences the first, whose transaction is aborted.
    write(producer(servers, "stuck"), "metered")
    with pytest.raises(KafkaException):
        stuck.commit_transaction(60)
    found = scrape(url)
    assert found["fencepost_transaction_fencings_total", ()] >= 1
    refused = {
        dict(labels)["error"]: v for (name, labels), v in found.items() if name == "fencepost_request_errors_total"
    }
    assert refused.keys() & {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}, refused
    assert found["fencepost_transactions_ended_total", (("outcome", "abort"),)] == 2


def test_the_broker_and_its_process_are_described(addresses: tuple[str, str]) -> None:
    found = scrape(addresses[1])
    (labels,) = [dict(labels) for (name, labels) in found if name == "fencepost_build_info"]
    assert labels["version"] == __version__
    if sys.platform == "linux":
        assert found["process_resident_memory_bytes", ()] > 1_000_000
        assert found["process_open_fds", ()] > 3


OLD_NAMES = {
    "fencepost_request_seconds_count": "fencepost_request_duration_seconds_count",
    "fencepost_lso_gap_records": "fencepost_lso_gap_offsets",
    "fencepost_log_end_offset_total": "fencepost_log_high_watermark",
}


@pytest.mark.parametrize("old", OLD_NAMES)
def test_a_name_that_was_replaced_is_served_for_one_more_version(addresses: tuple[str, str], old: str) -> None:
    servers, url = addresses
    once = producer(servers, "old-names")
    write(once, "watched")
    once.commit_transaction(60)
    found = scrape(url)

    def values(name: str) -> dict[tuple[tuple[str, str], ...], float]:
        return {labels: value for (sample, labels), value in found.items() if sample == name}

    assert values(old)
    assert values(old) == values(OLD_NAMES[old])


def test_a_probe_is_answered(addresses: tuple[str, str]) -> None:
    base = addresses[1].removesuffix("/metrics")
    for path, text in (("/health", b"alive\n"), ("/ready", b"ready\n")):
        with urllib.request.urlopen(base + path, timeout=30) as response:
            assert (response.status, response.read()) == (200, text)


@pytest.mark.parametrize("name", ["monitoring.md", "monitoring/alerts.yml", "monitoring/dashboard.json"])
def test_what_the_guide_watches_is_there(addresses: tuple[str, str], name: str) -> None:
    servers, url = addresses
    once = producer(servers, "once")
    for end in (once.commit_transaction, once.abort_transaction):
        write(once, "watched")
        end(60)
    served = {sample for sample, _ in scrape(url)}
    with urllib.request.urlopen(url, timeout=30) as response:
        # Errors have no sample before the first one, and a histogram has only buckets, a count and a sum.
        served |= set(re.findall(r"# TYPE (\S+) ", response.read().decode()))
    watched = set(re.findall(r"fencepost_\w+", (GUIDES / name).read_text())) - {"fencepost_sink"}
    assert watched
    assert watched <= served


@pytest.mark.parametrize(("path", "code"), [("/nothing", 404), ("/", 200)])
def test_other_pages_say_where_the_metrics_are(addresses: tuple[str, str], path: str, code: int) -> None:
    url = addresses[1].removesuffix("/metrics") + path
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            status, text = response.status, response.read()
    except urllib.error.HTTPError as e:
        status, text = e.code, e.read()
    assert status == code
    assert b"/metrics" in text


def test_a_metrics_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_fencepost("broker", "--listen", "127.0.0.1:0", "--memory", "--metrics", address)
    assert done.returncode == 1
    assert address in done.stderr
    assert "hint: choose another address with --metrics" in done.stderr
