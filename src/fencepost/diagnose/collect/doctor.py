"""Asks a cluster for `fencepost doctor`: partitions, coordinators, the log of transactions, groups, settings."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress

from fencepost.client.admin.answers import DEADLINE_S
from fencepost.client.admin.configs import describe_broker_configs, describe_topic_configs
from fencepost.client.admin.groups import is_note_group, list_groups
from fencepost.client.admin.topics import TopicLayout, describe_layouts
from fencepost.client.client import KafkaClient, retry
from fencepost.client.failures import BrokerError, ClientError
from fencepost.counting import whole_number
from fencepost.diagnose.collect.look import ends_of, now_ms
from fencepost.diagnose.collect.partitions import collect_lso
from fencepost.diagnose.collect.state_log import Progress, StateMemory, no_progress, read_state_memory
from fencepost.diagnose.collect.transactions import collect_txns
from fencepost.diagnose.doctor.findings import DoctorSettings, DoctorSnapshot, SecondLook, StateTopic
from fencepost.diagnose.doctor.transactions import MAX_AGE_MS
from fencepost.diagnose.snapshot import TXN_TOPIC, Look, TxnsSnapshot
from fencepost.protocol.messages import DescribeRpcsRequest

# Between two looks at a last stable offset that may move. Most transactions are shorter.
LONGEST_PAUSE_MS = 3000
MAX_INT64 = 2**63 - 1
MAX_TIMEOUT = "transaction.max.timeout.ms"
ABORT_CHECK = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
EXPIRATION = "transactional.id.expiration.ms"
VERIFICATION = "transaction.partition.verification.enable"
MIN_ISR = "min.insync.replicas"
DELETE_RETENTION = "delete.retention.ms"
CLEANUP = "cleanup.policy"
METADATA_VERSION = "metadata.version"
UNCLEAN = "unclean.leader.election.enable"


def collect_doctor(
    client: KafkaClient, progress: Progress = no_progress, max_age_ms: int = MAX_AGE_MS
) -> DoctorSnapshot:
    """One snapshot. Questions that the cluster does not answer become lines in `problems`.

    If readers wait for a transaction that cannot be found out, it looks at them again after `max_age_ms`, but at most
    LONGEST_PAUSE_MS.
    """
    problems: list[str] = []
    lso = collect_lso(client)
    txns = collect_txns(client)
    layout: TopicLayout | None = None
    try:
        layout = describe_layouts(client, [TXN_TOPIC]).get(TXN_TOPIC)
    except BrokerError as e:  # Not every user is allowed to see the topic.
        problems.append(f"the log of transactions is not known: {e}")
    memory: StateMemory | None = None
    state_topic: StateTopic | None = None
    if layout is not None:
        state_topic = _state_topic(client, layout, problems)
        try:
            memory = read_state_memory(client, progress)
            problems += memory.problems
        except ClientError as e:
            problems.append(f"the log of transactions cannot be read: {e}")
    groups = list_groups(client)
    txns = TxnsSnapshot(
        now_ms=txns.now_ms,
        listed=txns.listed,
        described=txns.described,
        updated_ms=memory.updated_ms if memory is not None else None,
        problems=txns.problems,
    )
    brokers = client.brokers()
    return DoctorSnapshot(
        now_ms=now_ms(),
        cluster_id=client.cluster_id,
        broker_count=len(brokers),
        is_fencepost=client.any_broker().session.max_version(DescribeRpcsRequest.definition.api_key) >= 0,
        lso=lso,
        second_look=_look_again(client, lso, min(max_age_ms, LONGEST_PAUSE_MS)),
        txns=txns,
        recent=memory.recent if memory is not None else {},
        state_topic=state_topic,
        settings=_settings(client, problems),
        metadata_versions=_metadata_versions(client, brokers),
        ends_bump_epochs=client.transaction_version.bumps_epoch,
        group_count=sum(not is_note_group(group_id) for group_id in groups.found),
        # Several questions may have the same answer.
        problems=tuple(
            dict.fromkeys(
                (
                    *lso.unanswered_coordinators,
                    *lso.problems,
                    *lso.warnings,
                    *txns.problems,
                    *groups.problems,
                    *problems,
                )
            )
        ),
    )


def _metadata_versions(client: KafkaClient, node_ids: Iterable[int]) -> tuple[int, ...]:
    """Brokers tell it when a connection begins. Those that do not answer are in the problems of other questions."""
    found = []
    for node_id in sorted(node_ids):
        with suppress(ClientError):
            found.append(client.broker(node_id).session.supported_features.get(METADATA_VERSION, -1))
    return tuple(level for level in found if level >= 0)


def _look_again(client: KafkaClient, lso: Look, pause_ms: int) -> SecondLook | None:
    """Look at the ends of unseen partitions, at least `pause_ms` after the first look."""
    if not lso.unseen:
        return None
    left_ms = pause_ms - (now_ms() - lso.now_ms)
    time.sleep(min(max(left_ms, 0), pause_ms) / 1000)
    return SecondLook(after_ms=now_ms() - lso.now_ms, ends=ends_of(client, lso.unseen).found)


def _state_topic(client: KafkaClient, layout: TopicLayout, problems: list[str]) -> StateTopic:
    shown: dict[str, str] = {}
    try:
        configs = describe_topic_configs(client, TXN_TOPIC, (MIN_ISR, DELETE_RETENTION, CLEANUP, UNCLEAN))
        shown = {config.name: config.value for config in configs if config.value is not None}
    except ClientError as e:  # This question needs a permission of its own.
        problems.append(f"the settings of {TXN_TOPIC} are unknown: {e}")
    return StateTopic(
        partition_count=len(layout.partitions),
        replication_factor=layout.replication_factor,
        min_insync_replicas=_number(shown, MIN_ISR),
        delete_retention_ms=_number(shown, DELETE_RETENTION),
        cleanup_policy=shown.get(CLEANUP),
        unclean_leader_election=_truth(shown, UNCLEAN),
    )


def _settings(client: KafkaClient, problems: list[str]) -> DoctorSettings:
    names = (MAX_TIMEOUT, ABORT_CHECK, EXPIRATION, VERIFICATION)
    try:
        node_id = min(client.brokers())
        shown = retry(lambda: describe_broker_configs(client, node_id, names), DEADLINE_S)
    except ClientError as e:
        problems.append(f"the settings of the brokers are unknown: {e}")
        return DoctorSettings()
    return DoctorSettings(
        max_timeout_ms=_number(shown, MAX_TIMEOUT),
        abort_check_ms=_number(shown, ABORT_CHECK),
        expiration_ms=_number(shown, EXPIRATION),
        verifies_partitions=_truth(shown, VERIFICATION),
    )


def _number(shown: dict[str, str], name: str) -> int | None:
    return whole_number(shown.get(name, ""), MAX_INT64)


def _truth(shown: dict[str, str], name: str) -> bool | None:
    return {"true": True, "false": False}.get(shown.get(name, "").lower())
