"""The options of `format("fencepost")`: which are settings of the sink, which have no effect, which are refused."""

from __future__ import annotations

import re

import pytest

from fencepost.client.failures import BadClientSetting
from fencepost.spark.format.options import KAFKA, ONLY, REFUSED, WITHOUT_EFFECT, parse_options
from fencepost.spark.settings import parse_sink_settings

GIVEN = {"kafka.bootstrap.servers": "a:1", "transactional.id": "x", "topic": "t"}


def test_options_of_sparks_own_sink_become_settings_whatever_their_case() -> None:
    options = parse_options(
        {**GIVEN, "Kafka.Compression.Type": "lz4", "checkpointLocation": "/c", "includeHeaders": "true"}, is_stream=True
    )
    assert options.settings == {
        "bootstrap.servers": "a:1",
        "transactional.id": "x",
        "topic": "t",
        "compression.type": "lz4",
    }
    assert parse_sink_settings(options.settings).compression == "lz4"


def test_settings_of_the_sink_may_have_the_prefix_of_kafka() -> None:
    with_prefix = {KAFKA + name.removeprefix(KAFKA): value for name, value in GIVEN.items()}
    assert parse_options(with_prefix, is_stream=True) == parse_options(GIVEN, is_stream=True)


def test_a_setting_that_is_given_twice_with_two_values_is_refused_with_both() -> None:
    with pytest.raises(BadClientSetting, match=r"transactional\.id is given twice, as x and as y"):
        parse_options({**GIVEN, "kafka.transactional.id": "y"}, is_stream=True)


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT))
def test_a_setting_of_producers_that_has_no_effect_here_is_named(name: str) -> None:
    assert parse_options({**GIVEN, f"kafka.{name}": "1"}, is_stream=True).without_effect == (f"kafka.{name}",)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_setting_that_would_change_the_records_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(BadClientSetting, match=rf"option kafka.{name} cannot be used with this sink\n\nhint: leave it"):
        parse_options({**GIVEN, f"kafka.{name}": "1"}, is_stream=True)


@pytest.mark.parametrize("name", sorted(ONLY))
def test_a_setting_that_would_not_be_exactly_once_is_refused_with_the_value_that_is(name: str) -> None:
    allowed = ONLY[name][0]
    assert parse_options({**GIVEN, f"kafka.{name}": allowed.upper()}, is_stream=True).settings["topic"] == "t"
    with pytest.raises(BadClientSetting, match=f"option kafka.{name}=0, expected {allowed}"):
        parse_options({**GIVEN, f"kafka.{name}": "0"}, is_stream=True)


# Of Apache Kafka 4.3, without those of ConsumerConfig.
JAVA_PRODUCER = """
acks batch.size bootstrap.servers buffer.memory client.dns.lookup client.id compression.gzip.level compression.lz4.level
compression.type compression.zstd.level config.providers connections.max.idle.ms delivery.timeout.ms enable.idempotence
enable.metrics.push interceptor.classes key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection
max.request.size metadata.max.age.ms metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms
metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys
receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms
retry.backoff.ms sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism sasl.oauthbearer.clock.skew.seconds
sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode
sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope.claim.name
sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url security.protocol security.providers
send.buffer.bytes socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.cipher.suites
ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password
ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type transaction.timeout.ms
transaction.two.phase.commit.enable transactional.id value.serializer
"""


@pytest.mark.parametrize("name", JAVA_PRODUCER.split())
def test_no_setting_of_kafkas_own_producer_is_unknown(name: str) -> None:
    """It is used, has no effect and is named, or is refused with what to do instead."""
    given = {"bootstrap.servers": "a:1", "transactional.id": "x", "topic": "t", name: "1"}
    if name == "bootstrap.servers":
        given[name] = "a:1"
    try:
        parse_sink_settings(parse_options({KAFKA + n: value for n, value in given.items()}, is_stream=True).settings)
    except BadClientSetting as e:
        assert "unknown setting" not in str(e)  # noqa: PT017 - many raise nothing.


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("__partition_columns", "partitionBy has no meaning for Kafka\n\nhint: the key chooses the partition"),
        ("path", 'path x has no meaning for Kafka\n\nhint: .option("topic", ...) names the topic'),
    ],
)
def test_what_spark_makes_an_option_of_is_refused_in_the_words_of_the_user(option: str, message: str) -> None:
    with pytest.raises(BadClientSetting, match=re.escape(message)):
        parse_options({**GIVEN, option: "x"}, is_stream=False)


def test_answers_are_for_streams_and_tokens_for_plain_writes() -> None:
    stream = parse_options({**GIVEN, "adopt": "q", "run_batch": "3", "max_attempts": "5"}, is_stream=True)
    assert stream.answers == {"adopt": "q", "run_batch": 3, "max_attempts": 5}
    assert parse_options({**GIVEN, "token": "today"}, is_stream=False).token == "today"
    for options, is_stream, message in (
        ({"adopt": "q"}, False, "option adopt is for a streaming query"),
        ({"token": "today"}, True, "option token is for a plain write"),
        ({"skip_batch": "-1"}, True, "option skip_batch=-1 is not a whole number"),
    ):
        with pytest.raises(BadClientSetting, match=re.escape(message)):
            parse_options({**GIVEN, **options}, is_stream=is_stream)
