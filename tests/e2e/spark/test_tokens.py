"""The sink and Apache Kafka with tokens and certificates: the driver and the tasks have them, and Spark shows none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fencepost.spark.lease.server import LeaseServer
from fencepost.spark.sink import BatchProgress, ExactlyOnceSink
from tests.e2e.spark.streams import (
    PLANE,
    TIMEOUT_S,
    Lines,
    await_held,
    create_topic,
    held_in_the_middle,
    hold,
    release,
    run,
    stream,
    values,
)
from tests.engines.apache_kafka import PASSWORD, REAUTHENTICATED_MS, ApacheKafka
from tests.engines.oidc import CLIENT_SECRET, OidcProvider

pytestmark = [pytest.mark.java]

Unique = Callable[[str], str]


@pytest.fixture
def provider(apache: ApacheKafka) -> Iterator[OidcProvider]:
    assert apache.token_key is not None
    with OidcProvider(apache.token_key) as running:
        yield running


def rows(spark: Any) -> Any:
    return spark.range(0, 40, 1, 2).selectExpr("cast(id AS string) AS value")


# Two Arrow batches for each task, of which the first is more than a task gathers before it writes.
ROWS, PAD = 20_000, "x" * 2048
ALL = sorted(str(n) for n in range(40))


@pytest.mark.usefixtures("plane")
def test_tasks_log_in_with_tokens_that_the_driver_fetches(
    spark: Any, apache: ApacheKafka, provider: OidcProvider, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Mapping[str, object]] = []
    offer = LeaseServer.offer

    def remember(server: LeaseServer, number: int, plan: Mapping[str, object]) -> None:
        plans.append(plan)
        offer(server, number, plan)

    monkeypatch.setattr(LeaseServer, "offer", remember)
    topic = create_topic(apache.bootstrap_servers, unique("token"))
    mine = {"transactional.id": unique("token"), "topic": topic, "fencepost.plane": PLANE.get()}
    sink = ExactlyOnceSink({**apache.security("SASL_SSL"), **provider.settings, **mine})
    try:
        assert sink.write(rows(spark)) == 40
    finally:
        sink.close()
    assert values(apache.bootstrap_servers, topic) == ALL
    assert len(provider.tokens) == 1, "the driver has fetched it, and no task has"
    assert len(plans) == 1
    assert CLIENT_SECRET not in str(plans)
    assert provider.url not in str(plans)


class HalfWritten:
    """A query whose second task waits in the middle of its rows."""

    running: Future[BatchProgress]

    def __init__(self, spark: Any, lines: Lines, settings: Mapping[str, object], checkpoint: Path) -> None:
        self.held = checkpoint.with_name("held")
        rows = stream(spark, lines).selectExpr(f"concat(value, '{PAD}') AS value")
        # The task has sent rows when it waits.
        self._rows = rows.mapInArrow(held_in_the_middle(self.held, batches_before=1), rows.schema)
        self._settings = settings
        self._checkpoint = checkpoint

    def run(self) -> BatchProgress:
        sink = ExactlyOnceSink(self._settings)
        try:
            run(self._rows, sink, self._checkpoint)
        finally:
            sink.close()
        return sink.recent_progress[-1]


@pytest.fixture
def half_written(
    spark: Any, apache: ApacheKafka, provider: OidcProvider, unique: Unique, tmp_path: Path, plane: str
) -> Iterator[HalfWritten]:
    """A micro-batch that is in the middle of a write when its logins have ended."""
    provider.lifetime_s = REAUTHENTICATED_MS / 1000
    lines = Lines(tmp_path / "lines")
    lines.add_batch(ROWS)
    topic = create_topic(apache.bootstrap_servers, unique("middle"), 1)
    mine = {"transactional.id": unique("middle"), "topic": topic, "fencepost.plane": plane}
    query = HalfWritten(
        spark, lines, {**apache.security("SASL_PLAINTEXT"), **provider.settings, **mine}, tmp_path / "checkpoint"
    )
    hold(query.held)
    with ThreadPoolExecutor(1) as other:
        query.running = other.submit(query.run)
        await_held(query.held, apache.bootstrap_servers, topic)
        time.sleep(REAUTHENTICATED_MS / 1000 * 1.2)  # The brokers close a connection that does not log in again.
        try:
            yield query
        finally:
            query.running.cancel()
    assert values(apache.bootstrap_servers, topic) == sorted(line + PAD for line in lines.all)


@pytest.mark.engines
def test_logins_that_end_in_the_middle_of_a_micro_batch_are_renewed_and_cost_no_transaction(
    half_written: HalfWritten, provider: OidcProvider
) -> None:
    fetched = len(provider.tokens)
    release(half_written.held)
    assert half_written.running.result(TIMEOUT_S).attempts == 1
    assert len(provider.tokens) > fetched


@pytest.mark.engines
def test_a_token_that_is_refused_in_the_middle_of_a_micro_batch_fails_the_query_and_the_restart_writes_it_once(
    half_written: HalfWritten, provider: OidcProvider
) -> None:
    provider.answer = 401, b'{"error": "invalid_client"}'
    release(half_written.held)
    with pytest.raises(Exception, match="with 401: invalid_client"):
        half_written.running.result(TIMEOUT_S)
    provider.answer = None
    assert half_written.run().outcome == "committed"


def test_a_token_of_a_function_reaches_tasks_although_the_function_cannot_be_pickled(
    spark: Any, apache: ApacheKafka, provider: OidcProvider, unique: Unique
) -> None:
    called, lock = [], threading.Lock()

    def make(config: str) -> tuple[str, float]:
        with lock:
            called.append(config)
        return provider.key.token(), time.time() + 3600

    topic = create_topic(apache.bootstrap_servers, unique("function"))
    login = {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": make, "sasl.oauthbearer.config": "eu-west-1"}
    mine = {"transactional.id": unique("function"), "topic": topic, "fencepost.plane": "python"}
    sink = ExactlyOnceSink({**apache.security("SASL_PLAINTEXT"), **login, **mine})
    try:
        assert sink.write(rows(spark)) == 40
    finally:
        sink.close()
    assert called == ["eu-west-1"]


# --- certificates -------------------------------------------------------------------------------------------


def forms(apache: ApacheKafka, folder: Path) -> dict[str, dict[str, str]]:
    assert apache.authority is not None
    client = apache.authority.certify("CN=sink of a test")
    keystore, truststore = folder / "key.p12", folder / "trust.p12"
    client.write_pkcs12(keystore, PASSWORD)
    apache.authority.write_truststore(truststore, PASSWORD)
    return {
        "PEM texts": {
            "ssl.ca.pem": apache.authority.pem,
            "ssl.certificate.pem": client.certificate_pem(),
            "ssl.key.pem": client.key_pem(PASSWORD),
            "ssl.key.password": PASSWORD,
        },
        "PKCS12": {
            "ssl.keystore.location": str(keystore),
            "ssl.keystore.password": PASSWORD,
            "ssl.truststore.location": str(truststore),
            "ssl.truststore.password": PASSWORD,
        },
    }


@pytest.mark.usefixtures("plane")
@pytest.mark.parametrize("form", ["PEM texts", "PKCS12"])
def test_tasks_show_the_certificate_of(
    spark: Any, apache: ApacheKafka, unique: Unique, tmp_path: Path, form: str
) -> None:
    topic = create_topic(apache.bootstrap_servers, unique("mtls"))
    wanted = apache.security("MTLS")
    given = {"security.protocol": "SSL", "topic": topic, **forms(apache, tmp_path)[form]}
    sink = ExactlyOnceSink(
        {
            "bootstrap.servers": wanted["bootstrap.servers"],
            "transactional.id": unique("mtls"),
            "fencepost.plane": PLANE.get(),
            **given,
        }
    )
    try:
        assert sink.write(rows(spark)) == 40
    finally:
        sink.close()
    assert values(apache.bootstrap_servers, topic) == ALL
