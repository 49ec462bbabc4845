"""The broker's settings: Kafka's names and defaults, and a few of our own that begin with `fencepost.`.

`parse` turns `name=value` strings into a `Config`. It refuses an unknown name and suggests the nearest known one.
A topic setting falls back to the broker setting that `TOPIC_SETTINGS` names. `listener.name.NAME.` before the name of a
setting in `LISTENER_SETTINGS` makes it a setting of one listener.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fencepost.broker.listeners import (
    DEFAULT_PROTOCOL_MAP,
    BadListener,
    parse_advertised,
    parse_listeners,
    parse_protocol_map,
)
from fencepost.machines.acl.authorizer import BadPrincipals, parse_super_users
from fencepost.spelling import did_you_mean


class BadSetting(ValueError):
    """A setting that cannot be used. The message has the given value and the allowed ones."""


class BadStoreType(ValueError):
    """A store of certificates that is not PEM. The message completes the sentence `name=text ...`."""


def check_store_type(text: str) -> None:
    if text != "PEM":
        raise BadStoreType(
            "is not PEM\n\nhint: `openssl pkcs12 -in STORE -nodes -out FILE` writes a PKCS12 store as PEM"
        )


class Setting(NamedTuple):
    # int (32 bits), long (64), float, bool, str, list, password (never shown); or the allowed words: `a|b` for one of
    # them, `a,b` for any of them.
    kind: str
    default: Any
    doc: str
    minimum: int | None = None
    maximum: int | None = None
    check: Callable[[str], object] | None = None  # Raises BadListener, BadPrincipals or BadStoreType.

    @property
    def is_list(self) -> bool:
        return self.kind == "list" or "," in self.kind


STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

SETTINGS: Mapping[str, Setting] = {
    "transaction.state.log.num.partitions": Setting("int", 50, "Partitions of __transaction_state. Cannot change once the topic exists.", 1),
    "transaction.state.log.segment.bytes": Setting("int", 104_857_600, "Segment size of __transaction_state.", 1024),
    "transaction.max.timeout.ms": Setting("int", 900_000, "The longest transaction.timeout.ms a client may ask for.", 1),
    "transactional.id.expiration.ms": Setting("int", 604_800_000, "Forget a transactional id that has been idle for this long.", 1),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": Setting("int", 10_000, "How often to look for timed-out transactions.", 1),
    "transaction.remove.expired.transaction.cleanup.interval.ms": Setting("int", 3_600_000, "How often to look for expired transactional ids.", 1),
    "transaction.partition.verification.enable": Setting("bool", True, "Refuse a transactional write to a partition that the coordinator has not added to the transaction (KIP-890)."),
    "transaction.two.phase.commit.enable": Setting("bool", False, "Accepted, without effect: the broker does not serve KIP-939."),
    "producer.id.expiration.ms": Setting("int", 86_400_000, "Forget a producer that has written nothing to a partition for this long.", 1),
    "producer.id.expiration.check.interval.ms": Setting("int", 600_000, "How often to look for expired producers.", 1),
    "offsets.topic.num.partitions": Setting("int", 50, "Partitions of __consumer_offsets. Cannot change once the topic exists.", 1),
    "offsets.topic.segment.bytes": Setting("int", 104_857_600, "Segment size of __consumer_offsets.", 1024),
    "offsets.retention.minutes": Setting("int", 10_080, "How long the offsets of an empty group are kept.", 1),
    "offsets.retention.check.interval.ms": Setting("long", 600_000, "How often to look for expired offsets.", 1),
    "offset.metadata.max.bytes": Setting("int", 4096, "The longest metadata string that can be committed with an offset.", 0),
    "group.min.session.timeout.ms": Setting("int", 6_000, "The shortest session timeout a member may ask for.", 1),
    "group.max.session.timeout.ms": Setting("int", 1_800_000, "The longest session timeout a member may ask for.", 1),
    "group.initial.rebalance.delay.ms": Setting("int", 0, "How long the first rebalance waits for more members.", 0),
    "group.max.size": Setting("int", 2_147_483_647, "The most members that a classic group may have.", 1),
    "group.consumer.session.timeout.ms": Setting("int", 45_000, "Remove a member of the consumer protocol after this long without a heartbeat.", 1),
    "group.consumer.heartbeat.interval.ms": Setting("int", 5_000, "The heartbeat interval of members of the consumer protocol.", 1),
    "group.consumer.max.size": Setting("int", 2_147_483_647, "The most members that a group of the consumer protocol may have.", 1),
    "group.consumer.assignors": Setting("uniform,range", "uniform,range", "Assignors of the consumer protocol. The first is used unless the members choose another.", 1),
    "group.consumer.assignment.interval.ms": Setting("int", 1_000, "The shortest time between two assignments of a group of the consumer protocol.", 0),
    "group.consumer.migration.policy": Setting("bidirectional|upgrade|downgrade|disabled", "bidirectional", "Which way a group with members may change between the classic and the consumer protocol."),
    "num.partitions": Setting("int", 1, "Partitions of a new topic whose creator gives no number.", 1),
    "default.replication.factor": Setting("int", 1, "Replicas of a new topic whose creator gives no number, at most one for each node. Clients see them; there is one copy of the bytes.", 1),
    "auto.create.topics.enable": Setting("bool", True, "Create a topic when a client first asks for it."),
    "delete.topic.enable": Setting("bool", True, "Allow DeleteTopics."),
    "message.max.bytes": Setting("int", 1_048_588, "The largest record batch.", 0),
    "log.message.timestamp.type": Setting("CreateTime|LogAppendTime", "CreateTime", "Whether a record keeps its producer's timestamp or gets the time of the append."),
    "log.message.timestamp.before.max.ms": Setting("long", 9_223_372_036_854_775_807, "How far a record's timestamp may lie in the past.", 0),
    "log.message.timestamp.after.max.ms": Setting("long", 3_600_000, "How far a record's timestamp may lie in the future.", 0),
    "log.segment.bytes": Setting("int", 1_073_741_824, "The size at which a segment is closed.", 1024),
    "log.roll.ms": Setting("long", 604_800_000, "The age at which a segment is closed.", 1),
    "log.roll.hours": Setting("int", 168, "log.roll.ms in hours; used if log.roll.ms is not given.", 1),
    "log.index.interval.bytes": Setting("int", 4096, "Bytes between two entries of the offset index.", 0),
    "log.retention.ms": Setting("long", 604_800_000, "How long records are kept; -1 for ever.", -1),
    "log.retention.minutes": Setting("int", "", "log.retention.ms in minutes; used if log.retention.ms is not given.", -1),
    "log.retention.hours": Setting("int", 168, "log.retention.ms in hours; used if neither log.retention.ms nor log.retention.minutes is given.", -1),
    "log.retention.bytes": Setting("long", -1, "The size above which the oldest segments of a partition are deleted; -1 for no limit.", -1),
    "log.retention.check.interval.ms": Setting("long", 300_000, "How often to look for segments to delete.", 1),
    "log.cleanup.policy": Setting("compact,delete", "delete", "How logs are kept short: delete, compact, both, or (empty) neither."),
    "log.cleaner.enable": Setting("bool", True, "Compact the topics with cleanup policy compact, including the internal topics."),
    "log.cleaner.backoff.ms": Setting("long", 15_000, "How often to look for logs to compact.", 0),
    "log.cleaner.min.cleanable.ratio": Setting("float", 0.5, "Compact a log when more than this fraction of it is dirty (not compacted yet).", 0, 1),
    "log.cleaner.min.compaction.lag.ms": Setting("long", 0, "Records younger than this are not compacted.", 0),
    "log.cleaner.max.compaction.lag.ms": Setting("long", 9_223_372_036_854_775_807, "Compact a log that has dirty records older than this, whatever its dirty fraction.", 1),
    "log.cleaner.delete.retention.ms": Setting("long", 86_400_000, "How long tombstones and markers stay in a compacted log.", 0),
    "log.cleaner.dedupe.buffer.size": Setting("long", 134_217_728, "Memory for the keys of a log during compaction, at 256 bytes a key.", 1 << 20),
    "compression.type": Setting("uncompressed|zstd|lz4|snappy|gzip|producer", "producer", "Accepted, without effect: record batches are stored as the producer sent them."),
    "min.insync.replicas": Setting("int", 1, "Accepted, without effect: one broker keeps each partition.", 1),
    "unclean.leader.election.enable": Setting("bool", False, "Accepted, without effect: a partition has one replica."),
    "socket.request.max.bytes": Setting("int", 104_857_600, "The largest request that is accepted.", 1024),
    "queued.max.request.bytes": Setting("long", 536_870_912, "Reading pauses while the requests in memory take more bytes than this.", 1024),
    "max.connections": Setting("int", 20_000, "The most connections at one time.", 1),
    "connections.max.idle.ms": Setting("long", 600_000, "Close a connection that has been idle for this long.", 1),
    "fetch.max.bytes": Setting("int", 57_671_680, "The most bytes that one fetch returns.", 1024),
    "max.incremental.fetch.session.cache.slots": Setting("int", 1000, "The most incremental fetch sessions that the broker keeps.", 0),
    "broker.id": Setting("int", 1, "The id of the first broker.", 0),
    "listeners": Setting("str", "", "The addresses for clients, as a list of NAME://HOST:PORT; without it, the address of --listen as the listener PLAINTEXT.", check=parse_listeners),
    "advertised.listeners": Setting("str", "", "The addresses that clients are given, as a list of NAME://HOST:PORT; without it, those of `listeners`. `--advertise HOST:PORT` sets that of the listener PLAINTEXT.", check=parse_advertised),
    "listener.security.protocol.map": Setting("str", DEFAULT_PROTOCOL_MAP, "The protocol of each listener, as a list of NAME:PROTOCOL.", check=parse_protocol_map),
    "ssl.keystore.type": Setting("str", "PEM", "Accepted, without effect: ssl.keystore.location is always PEM.", check=check_store_type),
    "ssl.keystore.location": Setting("str", "", "A file with the broker's private key and its chain of certificates, as PEM. It is read again when it changes."),
    "ssl.key.password": Setting("password", "", "The password of the private key in ssl.keystore.location, if it is encrypted."),
    "ssl.truststore.type": Setting("str", "PEM", "Accepted, without effect: ssl.truststore.location is always PEM.", check=check_store_type),
    "ssl.truststore.location": Setting("str", "", "A file with the certificates of the authorities that sign clients' certificates, as PEM. It is read again when it changes."),
    "ssl.client.auth": Setting("none|requested|required", "none", "Whether clients show a certificate. Listeners with SASL take it only with their prefix, listener.name.NAME."),
    "ssl.enabled.protocols": Setting("TLSv1.2,TLSv1.3", "TLSv1.2,TLSv1.3", "The versions of TLS that are accepted.", 1),
    "sasl.enabled.mechanisms": Setting("PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER", "SCRAM-SHA-256,SCRAM-SHA-512", "The SASL mechanisms that clients may use to log in.", 1),
    "sasl.oauthbearer.jwks.endpoint.url": Setting("str", "", "The public keys (JWKS) that sign the tokens of OAUTHBEARER: file:///PATH or https://HOST/PATH."),
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": Setting("long", 3_600_000, "How often the keys are read again from an address.", 1),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": Setting("long", 100, "The first pause after keys could not be read.", 1),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": Setting("long", 10_000, "The longest pause after keys could not be read.", 1),
    "sasl.oauthbearer.expected.audience": Setting("list", "", "The audiences of which a token must have one; none: any."),
    "sasl.oauthbearer.expected.issuer": Setting("str", "", "The issuer that a token must have; none: any."),
    "sasl.oauthbearer.clock.skew.seconds": Setting("int", 30, "How far the clocks of the broker and of the tokens' provider may differ.", 0),
    "sasl.oauthbearer.sub.claim.name": Setting("str", "sub", "The claim of a token that names the user."),
    "connections.max.reauth.ms": Setting("long", 0, "How long a login lasts. A client that knows KIP-368 repeats it in time, others are disconnected; 0: for ever.", 0),
    "connection.failed.authentication.delay.ms": Setting("int", 100, "How long the answer to a failed login is delayed.", 0),
    "authorizer.class.name": Setting(f"|{STANDARD_AUTHORIZER}", "", f"What decides who may do what: {STANDARD_AUTHORIZER} checks the ACLs. Without it, every client may do everything."),
    "super.users": Setting("str", "", "Principals that may do everything, as User:NAME;User:NAME. Used with an authorizer.", check=parse_super_users),
    "allow.everyone.if.no.acl.found": Setting("bool", False, "Whether everybody may use a resource that no ACL is about. Used with an authorizer."),
    "transaction.version": Setting("0|1|2", "2", "The level of the transaction.version feature in a new data folder."),
    "fencepost.allow.unauthenticated": Setting("bool", False, "Serve clients of other machines without authentication: every client may do everything."),
    "fencepost.flush.on.commit": Setting("bool", False, "Sync a transaction's data and decision to disk before EndTxn answers."),
    "fencepost.endtxn.reply": Setting("complete|prepare", "complete", "When EndTxn is answered: after all markers (complete), or after the decision as in Apache Kafka (prepare)."),
    "fencepost.state.clean.bytes": Setting("int", 262_144, "Compact a partition of an internal topic when this many bytes of it are dirty.", 1024),
    "fencepost.recovery.ongoing": Setting("keep|abort", "keep", "Whether a restart keeps or aborts open transactions."),
    "fencepost.recovery.missing": Setting("refuse|accept", "refuse", "What a start does if the data folder has less than its own records say: refuse, or accept the loss and start."),
    "fencepost.replication.factor": Setting("check|ignore", "check", "What CreateTopics does with a replication factor above the number of brokers: refuse it as Kafka does (check), or create the topic with as many replicas as there are brokers (ignore)."),
    "fencepost.crash.at": Setting("str", "", "Kill the process at this crash point, for tests and demos."),
}  # fmt: skip

# The settings that a listener may have for itself: `listener.name.NAME.ssl.client.auth`, or one SASL mechanism of it:
# `listener.name.NAME.plain.sasl.jaas.config`. NAME and the mechanism are in lower case.
LISTENER_PREFIX = "listener.name."
SASL_MECHANISMS = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer")
LISTENER_SETTINGS: Mapping[str, Setting] = {
    name: setting
    for name, setting in SETTINGS.items()
    if name.startswith(("ssl.", "sasl.")) or name == "connections.max.reauth.ms"
} | {
    "sasl.jaas.config": Setting(
        "password", "", "The users of PLAIN and their passwords; without effect for other mechanisms."
    )
}

# Topic setting -> the broker setting it falls back to.
TOPIC_SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}

# Setting -> the settings in larger units that can stand in for it, and the factor of each.
OTHER_UNITS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "log.retention.ms": (("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    "log.roll.ms": (("log.roll.hours", 3_600_000),),
}

# Kafka's topic settings that have no effect here. They are accepted and shown because clients send them.
INERT_TOPIC_SETTINGS: Mapping[str, Setting] = {
    name: Setting(kind, default, "Accepted, and without effect on this broker.", minimum, maximum)
    for name, kind, default, minimum, maximum in (
        ("compression.gzip.level", "int", -1, -1, 9),
        ("compression.lz4.level", "int", 9, 1, 17),
        ("compression.zstd.level", "int", 3, -131_072, 22),
        ("file.delete.delay.ms", "long", 60_000, 0, None),
        ("flush.messages", "long", 9_223_372_036_854_775_807, 1, None),
        ("flush.ms", "long", 9_223_372_036_854_775_807, 0, None),
        ("follower.replication.throttled.replicas", "list", "", None, None),
        ("leader.replication.throttled.replicas", "list", "", None, None),
        ("local.retention.bytes", "long", -2, -2, None),
        ("local.retention.ms", "long", -2, -2, None),
        ("preallocate", "bool", False, None, None),
        ("remote.log.copy.disable", "bool", False, None, None),
        ("remote.log.delete.on.disable", "bool", False, None, None),
        ("remote.storage.enable", "bool", False, None, None),
        ("segment.index.bytes", "int", 10_485_760, 4, None),
        ("segment.jitter.ms", "long", 0, 0, None),
    )
}


class Config:
    """Settings by name: `config["transaction.max.timeout.ms"]`."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self.given = dict(values or {})
        for name, others in OTHER_UNITS.items():
            found = [self.given[other] * factor for other, factor in others if other in self.given]
            if found and name not in self.given:
                self.given[name] = max(found[0], -1)
        self._values = {name: setting.default for name, setting in SETTINGS.items()} | self.given

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def for_topic(self, overrides: Mapping[str, str], name: str) -> Any:
        """The value of a topic setting: the topic's own, else the broker's."""
        fallback = TOPIC_SETTINGS[name]
        if name in overrides:
            return parse_value(name, SETTINGS[fallback], overrides[name])
        return self._values[fallback]

    def for_listener(self, listener: str, name: str, mechanism: str = "", is_own: bool = False) -> Any:
        """The value of a setting for one listener, and one SASL mechanism of it: the closest that is given.

        With `is_own`, the value for all listeners does not count, only the default.
        """
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        for full in (f"{prefix}{mechanism.lower()}.{name}", f"{prefix}{name}"):
            if full in self.given:
                return self.given[full]
        return self._values[name] if name in self._values and not is_own else LISTENER_SETTINGS[name].default

    def warnings(self) -> list[str]:
        """Warnings about settings that are allowed but dangerous."""
        found = []
        retention_ms, timeout_ms = self["log.cleaner.delete.retention.ms"], self["transaction.max.timeout.ms"]
        if retention_ms < timeout_ms:
            found.append(
                f"log.cleaner.delete.retention.ms={retention_ms} is shorter than transaction.max.timeout.ms={timeout_ms}: "
                "compaction may remove the records that fence a paused producer before it resumes"
            )
        expiration_ms = self["transactional.id.expiration.ms"]
        if expiration_ms < timeout_ms:
            found.append(
                f"transactional.id.expiration.ms={expiration_ms} is shorter than transaction.max.timeout.ms={timeout_ms}: "
                "the broker may forget the id of a paused producer, and a new producer with a fresh producer id would not "
                "fence the paused one"
            )
        if self["authorizer.class.name"] and not self["super.users"] and not self["allow.everyone.if.no.acl.found"]:
            found.append(
                "authorizer.class.name is set, and super.users is empty: unless the data folder has ACLs already, every "
                "request is denied, also the one that would create the first ACL"
            )
        return found


BITS = {"int": 31, "long": 63}


def parse_value(name: str, setting: Setting, text: str) -> Any:
    kind = setting.kind
    if kind in BITS or kind == "float":
        return _parse_number(name, setting, text)
    if kind == "bool":
        if text.strip().lower() not in ("true", "false"):
            raise BadSetting(f"{name}={text} is neither true nor false")
        return text.strip().lower() == "true"
    if "|" in kind and text not in kind.split("|"):
        raise BadSetting(f"{name}={text} is none of {', '.join(word or '(empty)' for word in kind.split('|'))}")
    if "," in kind:
        words = [word.strip() for word in text.split(",")] if text.strip() else []
        if not set(words) <= set(kind.split(",")):
            raise BadSetting(f"{name}={text} is none of {', '.join(kind.split(','))}")
        if len(words) < (setting.minimum or 0):
            raise BadSetting(f"{name} is empty, it takes at least {setting.minimum} of {', '.join(kind.split(','))}")
        return ",".join(dict.fromkeys(words))
    if setting.check is not None:
        try:
            setting.check(text)
        except (BadListener, BadPrincipals, BadStoreType) as e:
            raise BadSetting(f"{name}={text} {e}") from None
    return text


def _parse_number(name: str, setting: Setting, text: str) -> int | float:
    value: int | float
    try:
        value = float(text) if setting.kind == "float" else int(text)
    except ValueError:
        wanted = "a number" if setting.kind == "float" else "a whole number"
        raise BadSetting(f"{name}={text} is not {wanted}") from None
    if setting.kind in BITS and not -(1 << BITS[setting.kind]) <= value < 1 << BITS[setting.kind]:
        raise BadSetting(f"{name}={text} does not fit into {BITS[setting.kind] + 1} bits")
    if setting.minimum is not None and value < setting.minimum:
        raise BadSetting(f"{name}={text} is below its minimum {setting.minimum}")
    if setting.maximum is not None and value > setting.maximum:
        raise BadSetting(f"{name}={text} is above its maximum {setting.maximum}")
    return value


def parse(pairs: Mapping[str, str]) -> Config:
    values = {}
    for name, text in pairs.items():
        setting = setting_of(name)
        if setting is None:
            hint = did_you_mean(name, [*SETTINGS, *LISTENER_SETTINGS])
            raise BadSetting(f"unknown setting {name}" + (f"\n\nhint: {hint}" if hint else ""))
        values[name] = parse_value(name, setting, text)
    return Config(values)


def setting_of(name: str) -> Setting | None:
    """The type and limits of a setting of the broker, or of one of its listeners; None if the name is unknown."""
    if not name.startswith(LISTENER_PREFIX):
        return SETTINGS.get(name)
    listener, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    if rest.split(".")[0] in SASL_MECHANISMS:
        rest = rest.partition(".")[2]
    return LISTENER_SETTINGS.get(rest) if listener else None


def topic_setting(name: str) -> Setting | None:
    """The type and limits of a topic setting; None if the name is unknown."""
    if name in TOPIC_SETTINGS:
        return SETTINGS[TOPIC_SETTINGS[name]]
    return INERT_TOPIC_SETTINGS.get(name)


def check_topic_settings(overrides: Mapping[str, str]) -> None:
    """Raise BadSetting for a topic setting that is unknown or has an impossible value."""
    values = {}
    for name, text in overrides.items():
        setting = topic_setting(name)
        if setting is None:
            raise BadSetting(f"Unknown topic config name: {name}")
        values[name] = parse_value(name, setting, text)
    if values.get("remote.storage.enable"):
        raise BadSetting("remote.storage.enable=true: this broker keeps its records on its own disk")
    shortest_ms, longest_ms = values.get("min.compaction.lag.ms", 0), values.get("max.compaction.lag.ms")
    if longest_ms is not None and shortest_ms > longest_ms:
        raise BadSetting(f"min.compaction.lag.ms={shortest_ms} is above max.compaction.lag.ms={longest_ms}")
