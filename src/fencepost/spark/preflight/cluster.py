"""Asks a Kafka cluster, from the driver: can it be reached, what does it allow, what are its limits."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from fencepost.client.admin.configs import broker_setting, describe_topic_configs, setting_of_every_broker
from fencepost.client.admin.transactions import describe_transaction
from fencepost.client.client import KafkaClient
from fencepost.client.failures import BrokerError, ClientError
from fencepost.client.transaction import ADD_PARTITIONS, VERIFICATION, find_unverified
from fencepost.counting import counted
from fencepost.protocol import errors
from fencepost.spark.driver.access import DENIED, find_missing
from fencepost.spark.driver.decision import known_retention_ms
from fencepost.spark.driver.owner import glance_at_note
from fencepost.spark.driver.permissions import (
    Permission,
    describe_missing,
    principal_of,
    to_commit,
    to_move_group,
    to_own,
    to_use_token,
    to_write,
    without_implied,
)
from fencepost.spark.preflight.limits import (
    judge_id,
    judge_random_id,
    judge_record_batch,
    judge_retention,
    judge_timeout,
    judge_versions,
)
from fencepost.spark.preflight.report import OK, PROBLEM, UNKNOWN, Checked, from_message
from fencepost.spark.settings import SinkSettings

MINUTE_MS = 60_000
# A check is impatient: an address where nothing listens is reported soon.
PATIENCE_S = 1.0


def check_cluster(
    settings: SinkSettings, topics: Sequence[str], source_topics: Sequence[str], token: str | None = None
) -> tuple[list[Checked], dict[int, tuple[str, int]]]:
    """What was found, and the addresses of the brokers. Raises ClientError if the cluster cannot be reached."""
    with KafkaClient(settings.client, PATIENCE_S) as client:
        brokers = client.brokers()
        for node_id in brokers:
            client.broker(node_id)
        reached = ", ".join(f"{host}:{port}" for host, port in brokers.values())
        findings = [
            Checked("brokers from the driver", OK, reached),
            judge_versions(client.any_broker().session.features, _unverified(client, settings.is_verified)),
        ]
        found = {topic: _check_topic(client, topic) for topic in topics}
        findings += [finding for finding in found.values() if finding is not None]
        topics = [topic for topic, finding in found.items() if finding is None or finding.status == OK]
        findings.append(_check_permissions(client, settings, topics, source_topics, token))
        findings.append(_check_id(client, settings))
        findings.append(
            judge_timeout(
                settings.timeout_ms, _number(broker_setting(client, min(brokers), "transaction.max.timeout.ms"))
            )
        )
        retention_ms = known_retention_ms(
            setting_of_every_broker(client, "offsets.retention.minutes").values(), settings.retention_ms
        )
        minutes = None if retention_ms is None else retention_ms // MINUTE_MS
        findings.append(judge_retention(minutes, settings.retention_ms is not None))
        for topic in topics:
            findings.append(judge_record_batch(topic, settings.max_record_batch_bytes, _max_bytes(client, topic)))
    if settings.source_client is not None:
        findings += _check_source_cluster(settings, source_topics)
    return findings, brokers


def _unverified(client: KafkaClient, is_verified: bool) -> str | None:
    """Why late writes could do harm without transaction.version 2, as the sink itself asks when it starts."""
    served = {id_: client.broker(id_).session.max_version(ADD_PARTITIONS) for id_ in client.brokers()}
    return find_unverified(served, setting_of_every_broker(client, VERIFICATION), is_verified)


def _check_topic(client: KafkaClient, topic: str) -> Checked | None:
    """None: the cluster does not say, because a permission is missing."""
    subject = f"topic {topic}"
    try:
        count = len(client.topic(topic, fresh=True).leaders)
        return Checked(subject, OK, counted(count, "partition"))
    except BrokerError as e:
        if e.code in DENIED:
            return None
        hint = "create it: the sink does not" if e.code == errors.UNKNOWN_TOPIC_OR_PARTITION else None
        return Checked(subject, PROBLEM, str(e), hint)


def _check_id(client: KafkaClient, settings: SinkSettings) -> Checked:
    id_ = settings.transactional_id
    if settings.looks_random:
        return judge_random_id(id_)
    try:
        _, txn = describe_transaction(client, id_)
        note = glance_at_note(client, id_)
    except ClientError as e:
        return from_message(f"transactional.id {id_}", str(e), UNKNOWN)
    return judge_id(id_, txn, note, time.time_ns() // 1_000_000)


def _check_permissions(
    client: KafkaClient,
    settings: SinkSettings,
    topics: Iterable[str],
    source_topics: Iterable[str],
    token: str | None,
) -> Checked:
    id_ = settings.transactional_id
    needed = [*to_own(id_), *to_commit(id_), *to_write(topics, is_noted=True)]
    needed += to_use_token(id_, token) if token is not None else []
    if settings.group_id is not None and settings.source_client is None:
        needed += to_move_group(settings.group_id, source_topics)
    return _judge_permissions("permissions", client, settings.bootstrap_servers, needed)


def _check_source_cluster(settings: SinkSettings, source_topics: Iterable[str]) -> list[Checked]:
    assert settings.source_client is not None
    servers = str(settings.source_client["bootstrap.servers"])
    with KafkaClient(settings.source_client, PATIENCE_S) as client:
        try:
            reached = ", ".join(f"{host}:{port}" for host, port in client.brokers().values())
            needed = to_move_group(settings.group_id, source_topics) if settings.group_id else []
            return [
                Checked("brokers of the sources from the driver", OK, reached),
                _judge_permissions("permissions in the cluster of the sources", client, servers, needed),
            ]
        except ClientError as e:
            return [from_message("brokers of the sources from the driver", str(e))]


def _judge_permissions(subject: str, client: KafkaClient, servers: str, needed: Iterable[Permission]) -> Checked:
    needed = without_implied(needed)
    missing = find_missing(client, needed)
    if not missing:
        return Checked(subject, OK, ", ".join(str(permission) for permission in needed) or "none are needed")
    return from_message(subject, describe_missing(missing, principal_of(client.settings), servers))


def _max_bytes(client: KafkaClient, topic: str) -> int | None:
    try:
        shown = describe_topic_configs(client, topic, ["max.message.bytes"])
    except ClientError:
        return None
    return next((_number(one.value) for one in shown if one.name == "max.message.bytes"), None)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
