"""The sink and Apache Kafka with passwords and TLS: the right ones reach the executors, the wrong ones are named."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.client.client import TRANSACTION, KafkaClient
from fencepost.client.failures import AuthenticationFailed
from fencepost.protocol import errors
from fencepost.protocol.messages import DescribeTransactionsRequest
from fencepost.spark.lease.client import LeaseAddress
from fencepost.spark.lease.server import LeaseServer
from fencepost.spark.sink import ExactlyOnceSink
from tests.e2e.spark.streams import PLANE, Lines, create_topic, is_soon_free, run, stream, values, written
from tests.engines.apache_kafka import ApacheKafka
from tests.engines.oidc import CLIENT_SECRET, OidcProvider

pytestmark = [pytest.mark.java]

Unique = Callable[[str], str]


def is_known(kafka: ApacheKafka, transactional_id: str) -> bool:
    """Does the coordinator know the transactional id?"""
    with KafkaClient({"bootstrap.servers": kafka.bootstrap_servers}) as client:

        def code(reply: Any) -> int:
            return int(reply.transaction_states[0].error_code)

        request = DescribeTransactionsRequest([transactional_id])
        reply = client.ask_coordinator(transactional_id, TRANSACTION, request, code)
        return code(reply) != errors.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        ("SASL_PLAINTEXT", "PLAIN"),
        pytest.param("SASL_PLAINTEXT", "SCRAM-SHA-256", marks=pytest.mark.engines),
        ("SASL_SSL", "SCRAM-SHA-512"),
    ],
)
def test_the_right_password_is_known_to_executors_and_a_wrong_one_fails_the_query_by_name(
    spark: Any, apache: ApacheKafka, unique: Unique, tmp_path: Path, protocol: str, mechanism: str
) -> None:
    topic = create_topic(apache.bootstrap_servers, unique("secret"))
    id_, stranger = unique("secret"), unique("stranger")
    lines = Lines(tmp_path / "lines")
    lines.add_batch()

    wrong = ExactlyOnceSink(
        {**apache.security(protocol, mechanism, "a guess"), "transactional.id": stranger, "topic": topic}
    )
    with pytest.raises(Exception, match="AuthenticationFailed") as failed:
        run(stream(spark, lines), wrong, tmp_path / "checkpoint")
    wrong.close()
    assert "refused user 'alice'" in str(failed.value)
    assert "hint: check sasl.username and sasl.password" in str(failed.value)
    assert "a guess" not in str(failed.value)
    assert not is_known(apache, stranger)
    assert written(apache.bootstrap_servers, topic) == 0

    right = ExactlyOnceSink({**apache.security(protocol, mechanism), "transactional.id": id_, "topic": topic})
    try:
        run(stream(spark, lines), right, tmp_path / "checkpoint")
    finally:
        right.close()
    assert is_known(apache, id_)
    assert values(apache.bootstrap_servers, topic) == sorted(lines.all)
    assert is_soon_free(apache.bootstrap_servers, topic)


def test_neither_password_nor_token_is_in_the_plans_that_spark_shows(
    spark: Any, apache: ApacheKafka, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = []
    offer = LeaseServer.open

    def remember(server: LeaseServer, *args: Any) -> LeaseAddress:
        tokens.append(address := offer(server, *args))
        return address

    monkeypatch.setattr(LeaseServer, "open", remember)
    store = spark._jsparkSession.sharedState().statusStore()
    before = store.executionsCount()
    topic = create_topic(apache.bootstrap_servers, unique("hidden"))
    password = apache.security("SASL_PLAINTEXT", "PLAIN")["sasl.password"]
    sink = ExactlyOnceSink(
        {**apache.security("SASL_PLAINTEXT", "PLAIN"), "transactional.id": unique("hidden"), "topic": topic}
    )
    try:
        assert sink.write(spark.range(0, 40, 1, 2).selectExpr("cast(id AS string) AS value")) == 40
    finally:
        sink.close()
    assert store.executionsCount() > before
    shown = [store.executionsList().apply(n) for n in range(before, store.executionsCount())]
    text = "\n".join(str(s) for one in shown for s in (one.description(), one.details(), one.physicalPlanDescription()))
    assert "LeasedWrite" in text, "it is the write that is shown"
    assert tokens[0].token not in text
    assert str(password) not in text


@pytest.mark.engines
@pytest.mark.usefixtures("plane")
@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_neither_password_nor_token_is_in_sparks_event_log_or_in_any_log(
    apache: ApacheKafka, unique: Unique, tmp_path: Path, mechanism: str
) -> None:
    assert apache.authority is not None
    assert apache.token_key is not None
    topic = create_topic(apache.bootstrap_servers, unique("logged"))
    events, tokens = tmp_path / "events", tmp_path / "tokens"
    events.mkdir()
    mine = {"transactional.id": topic, "topic": topic, "fencepost.plane": PLANE.get()}
    with OidcProvider(apache.token_key) as provider:
        if mechanism == "PLAIN":
            security = apache.security("SASL_PLAINTEXT", "PLAIN")
            secrets = [security["sasl.password"]]
        else:
            client = apache.authority.certify("CN=client of a test")
            pem = {"ssl.certificate.pem": client.certificate_pem(), "ssl.key.pem": client.key_pem()}
            security = {**apache.security("SASL_SSL"), **provider.settings, **pem}
            secrets = [CLIENT_SECRET, client.key_pem().splitlines()[1]]
        done = subprocess.run(
            [
                *(sys.executable, Path(__file__).with_name("logging_job.py")),
                *(json.dumps({**security, **mine}), str(events), str(tokens)),
            ],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        secrets += provider.tokens
    assert done.returncode == 0, done.stderr[-4000:]
    logged = "\n".join(path.read_text() for path in events.rglob("*") if path.is_file())
    assert "SparkListenerSQLExecutionStart" in logged
    assert "DEBUG:asyncio" in done.stderr
    assert "DEBUG org.apache.spark." in done.stderr
    assert values(apache.bootstrap_servers, topic)
    assert len(secrets) > (mechanism == "OAUTHBEARER") * 2
    found = tokens.read_text().split()
    assert found
    for secret in (*found, *secrets):
        assert secret not in logged
        assert secret not in done.stderr + done.stdout


def test_a_wrong_security_protocol_is_reported_with_the_setting(apache: ApacheKafka) -> None:
    for port, protocol, said in (
        ("SASL_PLAINTEXT", "PLAINTEXT", r"another security\.protocol than PLAINTEXT\?"),
        ("SSL", "PLAINTEXT", r"this port wants security\.protocol=SSL or SASL_SSL"),
        ("SASL_PLAINTEXT", "SSL", r"another security\.protocol than SSL\?"),
    ):
        servers = apache.security(port)["bootstrap.servers"]
        with (
            KafkaClient({"bootstrap.servers": servers, "security.protocol": protocol}) as client,
            pytest.raises(Exception, match=said),
        ):
            client.brokers()
    sasl = apache.security("SASL_PLAINTEXT", "PLAIN") | {"bootstrap.servers": apache.bootstrap_servers}
    with KafkaClient(sasl) as client, pytest.raises(AuthenticationFailed, match=r"check sasl\.mechanism"):
        client.brokers()
