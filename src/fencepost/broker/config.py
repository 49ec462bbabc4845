"""The broker's settings: Kafka's names and defaults, and a few of our own that begin with `fencepost.`.

`parse` turns `name=value` strings into a `Config` and refuses what it does not know, with the nearest name
that it does. Topic settings fall back to the broker's setting named in `TOPIC_SETTINGS`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, NamedTuple


class BadSetting(ValueError):
    """A setting that cannot be used: the message says what was given and what would do."""


class Setting(NamedTuple):
    kind: str  # int, bool, str, or the allowed words with `|` between them.
    default: Any
    doc: str
    minimum: int | None = None


SETTINGS: Mapping[str, Setting] = {
    "transaction.state.log.num.partitions": Setting("int", 50, "Partitions of __transaction_state; fixed at first start.", 1),
    "transaction.state.log.segment.bytes": Setting("int", 104_857_600, "Segment size of __transaction_state.", 1024),
    "transaction.max.timeout.ms": Setting("int", 900_000, "The longest transaction.timeout.ms a client may ask for.", 1),
    "transactional.id.expiration.ms": Setting("int", 604_800_000, "An idle transactional id is forgotten after this.", 1),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": Setting("int", 10_000, "How often to look for timed-out transactions.", 1),
    "transaction.remove.expired.transaction.cleanup.interval.ms": Setting("int", 3_600_000, "How often to look for expired ids.", 1),
    "transaction.partition.verification.enable": Setting("bool", True, "Refuse writes that their coordinator knows nothing of (KIP-890)."),
    "transaction.two.phase.commit.enable": Setting("bool", False, "Allow InitProducerId with Enable2Pc (KIP-939)."),
    "producer.id.expiration.ms": Setting("int", 86_400_000, "A silent producer's state is dropped after this.", 1),
    "producer.id.expiration.check.interval.ms": Setting("int", 600_000, "How often to look for silent producers.", 1),
    "offsets.topic.num.partitions": Setting("int", 50, "Partitions of __consumer_offsets; fixed at first start.", 1),
    "offsets.topic.segment.bytes": Setting("int", 104_857_600, "Segment size of __consumer_offsets.", 1024),
    "offsets.retention.minutes": Setting("int", 10_080, "Offsets of an empty group are dropped after this.", 1),
    "offsets.retention.check.interval.ms": Setting("int", 600_000, "How often to look for expired offsets.", 1),
    "offset.metadata.max.bytes": Setting("int", 4096, "The longest metadata string of an offset.", 0),
    "group.min.session.timeout.ms": Setting("int", 6_000, "The shortest session timeout a member may ask for.", 1),
    "group.max.session.timeout.ms": Setting("int", 1_800_000, "The longest session timeout a member may ask for.", 1),
    "group.initial.rebalance.delay.ms": Setting("int", 0, "How long the first rebalance waits for more members.", 0),
    "group.max.size": Setting("int", 2_147_483_647, "Members a group may have.", 1),
    "num.partitions": Setting("int", 1, "Partitions of a topic that is created without a number.", 1),
    "default.replication.factor": Setting("int", 1, "Always 1: one broker keeps each partition.", 1),
    "auto.create.topics.enable": Setting("bool", True, "Create a topic when a client first asks for it."),
    "delete.topic.enable": Setting("bool", True, "Allow DeleteTopics."),
    "message.max.bytes": Setting("int", 1_048_588, "The largest record batch.", 0),
    "log.message.timestamp.type": Setting("CreateTime|LogAppendTime", "CreateTime", "Who sets a record's time."),
    "log.segment.bytes": Setting("int", 1_073_741_824, "The size at which a segment is closed.", 1024),
    "log.roll.ms": Setting("int", 604_800_000, "The age at which a segment is closed.", 1),
    "log.index.interval.bytes": Setting("int", 4096, "Bytes between two entries of the offset index.", 0),
    "log.retention.ms": Setting("int", 604_800_000, "How long records are kept; -1 is for ever.", -1),
    "log.retention.bytes": Setting("int", -1, "How much of a partition is kept; -1 is all.", -1),
    "log.retention.check.interval.ms": Setting("int", 300_000, "How often old segments are looked for.", 1),
    "log.cleanup.policy": Setting("str", "delete", "delete, compact or both."),
    "log.cleaner.delete.retention.ms": Setting("int", 86_400_000, "How long tombstones and markers outlive their data.", 0),
    "compression.type": Setting("str", "producer", "Batches are kept as the producer sent them."),
    "min.insync.replicas": Setting("int", 1, "Always 1: one broker keeps each partition.", 1),
    "unclean.leader.election.enable": Setting("bool", False, "There is nobody else to elect."),
    "socket.request.max.bytes": Setting("int", 104_857_600, "The largest request that is read.", 1024),
    "queued.max.request.bytes": Setting("int", 536_870_912, "Bytes of requests held in memory before reading pauses.", 1024),
    "max.connections": Setting("int", 20_000, "Connections that are accepted.", 1),
    "connections.max.idle.ms": Setting("int", 600_000, "A silent connection is closed after this.", 1),
    "fetch.max.bytes": Setting("int", 57_671_680, "The most that one fetch returns.", 1024),
    "max.incremental.fetch.session.cache.slots": Setting("int", 1000, "Fetch sessions that are remembered.", 0),
    "broker.id": Setting("int", 1, "The id of the first broker.", 0),
    "transaction.version": Setting("0|1|2", "2", "The transaction.version feature of a new data folder."),
    "fencepost.flush.on.commit": Setting("bool", False, "Sync a transaction's data and decision to disk before EndTxn answers."),
    "fencepost.endtxn.reply": Setting("complete|prepare", "complete", "Answer EndTxn after all markers, or (as Apache Kafka) after the decision."),
    "fencepost.recovery.ongoing": Setting("keep|abort", "keep", "What a restart does with open transactions."),
    "fencepost.crash.at": Setting("str", "", "Kill the process at this point: for tests and demos."),
}  # fmt: skip

# Topic setting -> the broker setting it falls back to.
TOPIC_SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.insync.replicas": "min.insync.replicas",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}

# Kafka's topic settings that make no difference here; they are accepted and shown, as clients send them.
INERT_TOPIC_SETTINGS: Mapping[str, str] = {
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "leader.replication.throttled.replicas": "",
    "max.compaction.lag.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "preallocate": "false",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
}


class Config:
    """Settings by name: `config["transaction.max.timeout.ms"]`."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self.given = dict(values or {})
        self._values = {name: setting.default for name, setting in SETTINGS.items()} | self.given

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def for_topic(self, overrides: Mapping[str, str], name: str) -> Any:
        """The value of a topic setting: the topic's own, else the broker's."""
        fallback = TOPIC_SETTINGS[name]
        if name in overrides:
            return parse_value(name, SETTINGS[fallback], overrides[name])
        return self._values[fallback]

    def warnings(self) -> list[str]:
        """Settings that are allowed and dangerous."""
        found = []
        retention_ms, timeout_ms = self["log.cleaner.delete.retention.ms"], self["transaction.max.timeout.ms"]
        if retention_ms < timeout_ms:
            found.append(
                f"log.cleaner.delete.retention.ms={retention_ms} is shorter than transaction.max.timeout.ms={timeout_ms}: "
                "what fences a producer may be forgotten before the producer wakes up"
            )
        expiration_ms = self["transactional.id.expiration.ms"]
        if expiration_ms < timeout_ms:
            found.append(
                f"transactional.id.expiration.ms={expiration_ms} is shorter than transaction.max.timeout.ms={timeout_ms}: "
                "a paused producer may find its id forgotten, and a new one takes a fresh producer id that fences nobody"
            )
        return found


def parse_value(name: str, setting: Setting, text: str) -> Any:
    if setting.kind == "int":
        try:
            value = int(text)
        except ValueError:
            raise BadSetting(f"{name}={text} is not a whole number") from None
        if setting.minimum is not None and value < setting.minimum:
            raise BadSetting(f"{name}={text} is below its minimum {setting.minimum}")
        return value
    if setting.kind == "bool":
        if text.lower() not in ("true", "false"):
            raise BadSetting(f"{name}={text} is neither true nor false")
        return text.lower() == "true"
    if "|" in setting.kind and text not in setting.kind.split("|"):
        raise BadSetting(f"{name}={text} is none of {', '.join(setting.kind.split('|'))}")
    return text


def parse(pairs: Mapping[str, str]) -> Config:
    values = {}
    for name, text in pairs.items():
        setting = SETTINGS.get(name)
        if setting is None:
            near = difflib.get_close_matches(name, SETTINGS, n=1)
            raise BadSetting(f"unknown setting {name}" + (f"\n\nhint: did you mean {near[0]}?" if near else ""))
        values[name] = parse_value(name, setting, text)
    return Config(values)


def check_topic_settings(overrides: Mapping[str, str | None]) -> None:
    """Raise BadSetting for a topic setting that is unknown or has an impossible value."""
    for name, text in overrides.items():
        if name in INERT_TOPIC_SETTINGS:
            continue
        if name not in TOPIC_SETTINGS:
            raise BadSetting(f"Unknown topic config name: {name}")
        if text is None:
            raise BadSetting(f"Null value not supported for topic configs: {name}")
        if name == "cleanup.policy" and not set(text.split(",")) <= {"delete", "compact"}:
            raise BadSetting(f"{name}={text} is none of delete, compact")
        parse_value(name, SETTINGS[TOPIC_SETTINGS[name]], text)
