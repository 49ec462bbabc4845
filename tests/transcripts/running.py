"""Runs transcripts: one line per request, with the expected reply and the state after it.

    init     t1                  -> pid=1 epoch=0      Empty
    add      t1 1/0 orders-0     -> NONE               Ongoing
    end.v4   t1 1/0 commit       -> NONE               CompleteCommit

Before the first request:

- `use tv1` or `use tv2`: the default versions of the requests.
- `set NAME=VALUE`: a setting.
- `only fencepost`, with a reason: no other broker can run the transcript.

A producer id is a name; the first reply that mentions it defines its number. A line without `->` has no reply to
compare. If the last word of a reply is the name of a state, it is that of the transactional id that begins the line.
`~ REPLY` at the end of a line is the answer of Apache Kafka, where it differs on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

from fencepost.machines.txn.states import BY_KAFKA_NAME, NO_ID, Txn
from fencepost.protocol import errors
from fencepost.protocol.batch import decode_marker, encode_batch
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    ProduceRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
    UpdateFeaturesRequest,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.records import iter_batches, iter_records
from fencepost.protocol.schema import Message
from fencepost.protocol.topic_partition import TopicPartition
from fencepost.protocol.transaction_version import TV2, TransactionVersion
from tests.readers.isolation import Isolation

# The versions of requests that TV1 and TV2 clients use.
TV1_REQUESTS = {"init": 4, "add": 3, "offsets": 3, "end": 4, "commit-offset": 3, "produce": 11}
TV2_REQUESTS = {"init": 5, "add": 3, "offsets": 4, "end": 5, "commit-offset": 5, "produce": 12}
OTHERS = {"verify": 5, "marker": 2, "list": 2, "find": 4}
UNSTABLE_STATES = ("PrepareCommit", "PrepareAbort")
MAX_BYTES = 1 << 20
BUSY = {
    "CONCURRENT_TRANSACTIONS",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "NOT_ENOUGH_REPLICAS",
    "NOT_LEADER_OR_FOLLOWER",
}
LOOKING = {"describe", "ends", "fetch-offset", "list", "log", "producers", "read"}
PATIENCE = 200


class Target(Protocol):
    """A broker on which transcripts can run."""

    @property
    def now_ms(self) -> int: ...

    # It writes markers at its own pace, so its state may be ahead of the transcript.
    is_independent: bool
    # It gives Apache Kafka's answer (`~ REPLY`) where Fencepost differs on purpose.
    is_apache: bool

    def call(self, request: Message, version: int, client_id: str | None = ...) -> Any: ...

    def advance(self, ms: int) -> None:
        """Let time pass."""
        ...

    def restart(self) -> None:
        """A new process with the same data."""
        ...

    def write_state(self, txn: Txn) -> None:
        """Append a record to `__transaction_state` directly. The coordinator reads it after a restart."""
        ...


@dataclass
class Step:
    line: int
    text: str
    command: str
    version: int | None
    words: list[str]
    expected: list[str] | None
    kafka_expected: list[str] | None = None


@dataclass
class Transcript:
    name: str
    settings: dict[str, str] = field(default_factory=dict)
    only_fencepost: str | None = None
    versions: dict[str, int] = field(default_factory=lambda: TV2_REQUESTS | OTHERS)
    steps: list[Step] = field(default_factory=list)


def parse(path: Path) -> Transcript:
    transcript = Transcript(path.stem)
    for number, raw in enumerate(path.read_text().splitlines(), 1):
        text = raw.partition("#")[0].rstrip()
        if not text.strip():
            continue
        first, _, rest = text.strip().partition(" ")
        if first == "use":
            transcript.versions = (TV1_REQUESTS if rest.strip() == "tv1" else TV2_REQUESTS) | OTHERS
        elif first == "set":
            name, _, value = rest.strip().partition("=")
            transcript.settings[name] = value
        elif first == "only":
            transcript.only_fencepost = rest
        else:
            transcript.steps.append(parse_step(number, text))
    return transcript


def parse_step(number: int, text: str) -> Step:
    text, _, kafka = text.partition("~")
    left, arrow, right = text.partition("->")
    head, *words = left.split()
    command, _, version = head.partition(".v")
    return Step(
        number,
        text.strip(),
        command,
        int(version) if version else None,
        words,
        right.split() if arrow else None,
        kafka.split() if kafka else None,
    )


class Mismatch(AssertionError):
    pass


def run(transcript: Transcript, target: Target, prefix: str = "") -> Stage:
    """Run every step. `prefix` separates the names of transcripts that share a broker."""
    stage = Stage(target, transcript.versions, prefix)
    for step in transcript.steps:
        try:
            stage.run(step)
        except Mismatch as e:
            raise Mismatch(f"{transcript.name}.txt:{step.line}: {step.text}\n  {e}") from None
        except Exception as e:
            raise AssertionError(f"{transcript.name}.txt:{step.line}: {step.text}\n  {e!r}") from e
    return stage


def partition_name(text: str) -> TopicPartition:
    topic, _, index = text.rpartition("-")
    return topic, int(index)


def options(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """The plain words, and the `name=value` words as a dictionary."""
    plain = [w for w in words if "=" not in w]
    return plain, dict(w.split("=", 1) for w in words if "=" in w)


class Stage:
    """One run of one transcript: its names, and the request of each command."""

    def __init__(self, target: Target, versions: dict[str, int], prefix: str) -> None:
        self.target = target
        self.versions = versions
        self.prefix = prefix
        self.producer_ids: dict[str, int] = {}
        self.members: dict[str, str] = {"": ""}
        self._version = 0
        self._known_groups: set[str] = set()

    # --- steps --------------------------------------------------------------------------------------------

    def run(self, step: Step) -> None:
        command: Callable[..., Iterator[str]] = getattr(self, "do_" + step.command.replace("-", "_"))
        self._version = step.version if step.version is not None else self.versions.get(step.command, 0)
        expected = step.expected
        if self.target.is_apache and step.kafka_expected is not None:
            expected = step.kafka_expected
        words, state = expected, None
        if expected and expected[-1] in (*BY_KAFKA_NAME, "unknown"):
            words, state = expected[:-1], expected[-1]
        for _ in range(PATIENCE if self.target.is_independent else 1):
            actual = list(command(*step.words))
            is_right = words is None or self._agree(words, actual)
            # An independent broker may still be busy with the previous transaction or with its start.
            is_busy = bool(BUSY.intersection(actual) - set(words or ()))
            if not is_busy and (is_right or step.command not in LOOKING):
                break
            self.target.advance(20)
        if not is_right:
            raise Mismatch(f"got -> {' '.join(actual)}")
        if state is not None:
            self._check_state(step.words[0], state)

    def _agree(self, expected: list[str], actual: list[str]) -> bool:
        """Compare words. If all of them agree, new names of producer ids get their numbers."""
        known = dict(self.producer_ids)
        if len(expected) == len(actual) and all(self._is_same(*pair) for pair in zip(expected, actual)):
            return True
        self.producer_ids = known
        return False

    def _is_same(self, expected: str, actual: str) -> bool:
        name = expected.removeprefix("pid=")
        if name == expected or not actual.startswith("pid="):
            return fnmatchcase(actual, expected.replace("[", "[[]"))
        number = int(actual.removeprefix("pid="))
        if name not in self.producer_ids and number not in self.producer_ids.values():
            self.producer_ids[name] = number
        return self.producer_ids.get(name) == number

    def _check_state(self, transactional_id: str, expected: str) -> None:
        allowed = {expected}
        if self.target.is_independent and expected in UNSTABLE_STATES:
            allowed.add(expected.replace("Prepare", "Complete"))
        actual = self._state_of(transactional_id)
        for _ in range(PATIENCE if self.target.is_independent else 0):
            if actual in allowed:
                break
            self.target.advance(20)
            actual = self._state_of(transactional_id)
        if actual not in allowed:
            raise Mismatch(f"{transactional_id} is {actual}")

    def _state_of(self, transactional_id: str) -> str:
        reply = self.target.call(DescribeTransactionsRequest([self._name(transactional_id)]), 0)
        found = reply.transaction_states[0]
        if found.error_code == errors.TRANSACTIONAL_ID_NOT_FOUND:
            return "unknown"
        return str(found.transaction_state) or errors.name_of(found.error_code)

    # --- names --------------------------------------------------------------------------------------------

    def _name(self, name: str) -> str:
        return "" if name == '""' else self.prefix + name

    def _group(self, name: str) -> str:
        """The full name of a group. Looks for its coordinator first, as every client does."""
        group = self._name(name)
        while group and group not in self._known_groups:
            reply = self.target.call(FindCoordinatorRequest(group, 0), 1)
            if reply.error_code == 0:
                self._known_groups.add(group)
            else:
                self.target.advance(50)
        return group

    def _short(self, name: str) -> str:
        return name.removeprefix(self.prefix)

    def _partition(self, text: str) -> TopicPartition:
        topic, index = partition_name(text)
        return self._topic(topic), index

    def _topic(self, topic: str) -> str:
        return topic if topic.startswith("__") else self._name(topic)

    def _producer(self, text: str) -> tuple[int, int]:
        """`1/0` is producer id 1 with epoch 0."""
        name, _, epoch = text.partition("/")
        number = self.producer_ids.get(name)
        return (int(name) if number is None else number), int(epoch)

    def _topics_of(self, partitions: tuple[str, ...]) -> dict[str, list[int]]:
        topics: dict[str, list[int]] = {}
        for topic, index in map(self._partition, partitions):
            topics.setdefault(topic, []).append(index)
        return topics

    def _codes(self, results: list[tuple[str, int]]) -> Iterator[str]:
        """One word if all partitions have the same error, else one for each."""
        codes = {code for _, code in results}
        if len(codes) == 1:
            yield errors.name_of(codes.pop())
        else:
            for name, code in results:
                yield f"{self._short(name)}={errors.name_of(code)}"

    # --- the stage ----------------------------------------------------------------------------------------

    def do_topic(self, name: str, partitions: str = "1") -> Iterator[str]:
        topic = CreateTopicsRequest.CreatableTopic(self._name(name), int(partitions), 1)
        reply = self.target.call(CreateTopicsRequest([topic], 10_000), 5)
        yield errors.name_of(reply.topics[0].error_code)
        latest = [ListOffsetsRequest.ListOffsetsPartition(index, -1, -1) for index in range(int(partitions))]
        wanted = [ListOffsetsRequest.ListOffsetsTopic(self._name(name), latest)]
        for _ in range(200):
            # Not Metadata, which can name a leader before that broker is ready to lead.
            found = self.target.call(ListOffsetsRequest(-1, 0, wanted), 5).topics[0]
            if all(p.error_code == 0 for p in found.partitions):
                return
            self.target.advance(20)

    def do_delete_topic(self, name: str) -> Iterator[str]:
        reply = self.target.call(DeleteTopicsRequest([], [self._name(name)], 10_000), 5)
        yield errors.name_of(reply.responses[0].error_code)
        for _ in range(200):
            wanted = [MetadataRequest.MetadataRequestTopic(name=self._name(name))]
            found = self.target.call(MetadataRequest(wanted, allow_auto_topic_creation=False), 4).topics[0]
            if found.error_code == errors.UNKNOWN_TOPIC_OR_PARTITION:
                return
            self.target.advance(20)

    def do_wait(self, ms: str) -> Iterator[str]:
        self.target.advance(int(ms))
        yield "NONE"

    def do_markers(self, transactional_id: str) -> Iterator[str]:
        """Give the coordinator time to write markers."""
        self.target.advance(0)
        yield "NONE"

    def do_restart(self) -> Iterator[str]:
        self.target.restart()
        yield "NONE"

    def do_feature(self, level: str) -> Iterator[str]:
        """Change `transaction.version`, and wait until ApiVersions shows it to clients."""
        kind = UpdateFeaturesRequest.FeatureUpdateKey
        for how in (1, 2):  # An upgrade; if it is refused, a downgrade.
            update = kind("transaction.version", int(level), upgrade_type=how)
            reply = self.target.call(UpdateFeaturesRequest(10_000, [update], False), 1)
            if reply.error_code == 0:
                break
        yield errors.name_of(reply.error_code)
        for _ in range(200):
            found = self.target.call(ApiVersionsRequest("transcript", "1"), 4).finalized_features
            if {f.name: f.max_version_level for f in found}.get("transaction.version", 0) == int(level):
                return
            self.target.advance(20)

    def do_preset(self, transactional_id: str, producer: str, state: str, *rest: str) -> Iterator[str]:
        """A transactional id as an earlier process might have left it.

        `started=MS` and `updated=MS` say how long ago. So a transcript need not be fast to see a time run out.
        """
        partitions, given = options(list(rest))
        producer_id, epoch = self._producer(producer)
        now_ms = self.target.now_ms
        self.target.write_state(
            Txn(
                self._name(transactional_id),
                producer_id,
                epoch,
                int(given.get("timeout", 60_000)),
                BY_KAFKA_NAME[state],
                frozenset(map(self._partition, partitions)),
                -1 if state == "Empty" else now_ms - int(given.get("started", 0)),
                now_ms - int(given.get("updated", 0)),
                int(given.get("previous", NO_ID)),
                int(given.get("next", NO_ID)),
                TransactionVersion(int(given.get("tv", TV2))),
            )
        )
        yield "NONE"

    # --- the transaction's requests -----------------------------------------------------------------------

    def do_init(self, transactional_id: str, *rest: str) -> Iterator[str]:
        plain, given = options(list(rest))
        producer_id, epoch = self._producer(plain[0]) if plain else (-1, -1)
        name = None if transactional_id == "-" else self._name(transactional_id)
        request = InitProducerIdRequest(name, int(given.get("timeout", 60_000)), producer_id, epoch)
        reply = self.target.call(request, self._version)
        if reply.error_code:
            assert (reply.producer_id, reply.producer_epoch) == (-1, -1), "an error came with a producer id"
            yield errors.name_of(reply.error_code)
        else:
            yield from (f"pid={reply.producer_id}", f"epoch={reply.producer_epoch}")

    def do_add(self, transactional_id: str, producer: str, *partitions: str) -> Iterator[str]:
        return self._add(transactional_id, producer, partitions, verify_only=False)

    def do_verify(self, transactional_id: str, producer: str, *partitions: str) -> Iterator[str]:
        return self._add(transactional_id, producer, partitions, verify_only=True)

    def _add(
        self, transactional_id: str, producer: str, partitions: tuple[str, ...], verify_only: bool
    ) -> Iterator[str]:
        kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        topics = [kind(topic, indexes) for topic, indexes in self._topics_of(partitions).items()]
        name, (producer_id, epoch) = self._name(transactional_id), self._producer(producer)
        if self._version >= 4:
            txn = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(name, producer_id, epoch, verify_only, topics)
            request = AddPartitionsToTxnRequest(transactions=[txn])
        else:
            request = AddPartitionsToTxnRequest((), name, producer_id, epoch, topics)
        reply = self.target.call(request, self._version)
        if self._version >= 4:
            assert reply.error_code == 0, f"error {reply.error_code} for the whole request"
            results = reply.results_by_transaction[0].topic_results
        else:
            results = reply.results_by_topic_v3_and_below
        found = [
            (f"{t.name}-{p.partition_index}", p.partition_error_code) for t in results for p in t.results_by_partition
        ]
        yield from self._codes(sorted(found))

    def do_offsets(self, transactional_id: str, producer: str, group: str) -> Iterator[str]:
        request = AddOffsetsToTxnRequest(self._name(transactional_id), *self._producer(producer), self._group(group))
        yield errors.name_of(self.target.call(request, self._version).error_code)

    def do_commit_offset(self, transactional_id: str, producer: str, group: str, *rest: str) -> Iterator[str]:
        """`orders-0@5` is offset 5 of orders-0; `generation=`, `member=` and `instance=` say who commits."""
        plain, given = options(list(rest))
        kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        partition_kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
        topics: dict[str, list[Any]] = {}
        for word in plain:
            place, _, offset = word.partition("@")
            topic, index = self._partition(place)
            metadata = "m" * int(given.get("metadata", 0))
            topics.setdefault(topic, []).append(partition_kind(index, int(offset), -1, metadata))
        request = TxnOffsetCommitRequest(
            self._name(transactional_id),
            self._group(group),
            *self._producer(producer),
            int(given.get("generation", -1)),
            self.members.get(given.get("member", ""), given.get("member", "")),
            given.get("instance"),
            [kind(topic, partitions) for topic, partitions in topics.items()],
        )
        reply = self.target.call(request, self._version)
        found = [(f"{t.name}-{p.partition_index}", p.error_code) for t in reply.topics for p in t.partitions]
        yield from self._codes(sorted(found))

    def do_end(self, transactional_id: str, producer: str, how: str) -> Iterator[str]:
        assert how in ("commit", "abort")
        request = EndTxnRequest(self._name(transactional_id), *self._producer(producer), how == "commit")
        reply = self.target.call(request, self._version)
        if reply.error_code or self._version < 5:
            assert (reply.producer_id, reply.producer_epoch) == (-1, -1)
            yield errors.name_of(reply.error_code)
        else:
            yield from (f"pid={reply.producer_id}", f"epoch={reply.producer_epoch}")

    def do_produce(
        self, transactional_id: str, producer: str, sequence: str, place: str, *values: str
    ) -> Iterator[str]:
        """Write a batch of `values`. With the transactional id `-` the batch is not transactional."""
        values = values or ("x",)
        producer_id, epoch = self._producer(producer)
        batch = encode_batch(
            [(None, value.encode()) for value in values],
            self.target.now_ms,
            producer_id,
            epoch,
            int(sequence),
            transactional=transactional_id != "-",
        )
        topic, index = self._partition(place)
        name = None if transactional_id == "-" else self._name(transactional_id)
        topic_id = self._topic_id(topic) if self._version >= 13 else bytes(16)
        data = ProduceRequest.TopicProduceData(topic, topic_id, [ProduceRequest.PartitionProduceData(index, batch)])
        reply = self.target.call(ProduceRequest(name, -1, 10_000, [data]), self._version)
        result = reply.responses[0].partition_responses[0]
        yield errors.name_of(result.error_code) if result.error_code else f"offset={result.base_offset}"

    def _topic_id(self, topic: str) -> bytes:
        wanted = [MetadataRequest.MetadataRequestTopic(name=topic)]
        reply = self.target.call(MetadataRequest(wanted, allow_auto_topic_creation=False), 12)
        topic_id: bytes = reply.topics[0].topic_id
        return topic_id

    def do_marker(self, producer: str, how: str, *rest: str) -> Iterator[str]:
        partitions, given = options(list(rest))
        kind = WriteTxnMarkersRequest.WritableTxnMarkerTopic
        topics = [kind(topic, indexes) for topic, indexes in self._topics_of(tuple(partitions)).items()]
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            *self._producer(producer),
            how == "commit",
            topics,
            int(given.get("coordinator", 0)),
            int(given.get("tv", 0)),
        )
        reply = self.target.call(WriteTxnMarkersRequest([marker]), self._version)
        found = [(f"{t.name}-{p.partition_index}", p.error_code) for t in reply.markers[0].topics for p in t.partitions]
        yield from self._codes(sorted(found))

    # --- looking ------------------------------------------------------------------------------------------

    def do_describe(self, transactional_id: str) -> Iterator[str]:
        found = self.target.call(DescribeTransactionsRequest([self._name(transactional_id)]), 0).transaction_states[0]
        if found.error_code:
            yield errors.name_of(found.error_code)
            return
        yield from (
            found.transaction_state,
            f"pid={found.producer_id}",
            f"epoch={found.producer_epoch}",
            f"timeout={found.transaction_timeout_ms}",
            "started" if found.transaction_start_time_ms >= 0 else "not-started",
        )
        yield from sorted(f"{self._short(t.topic)}-{index}" for t in found.topics for index in t.partitions)

    def do_list(self, *rest: str) -> Iterator[str]:
        given = dict(word.split("=", 1) for word in rest)
        request = ListTransactionsRequest(
            given["states"].split(",") if "states" in given else [],
            [self._producer(name + "/0")[0] for name in given["pids"].split(",")] if "pids" in given else [],
            int(given.get("longer", -1)),
            given.get("pattern"),
        )
        reply = self.target.call(request, self._version)
        if reply.error_code:
            yield errors.name_of(reply.error_code)
            return
        yield from (f"{name}?" for name in reply.unknown_state_filters)
        yield from sorted(
            f"{self._short(t.transactional_id)}={t.transaction_state}"
            for t in reply.transaction_states
            if t.transactional_id.startswith(self.prefix)
        )

    def do_producers(self, place: str) -> Iterator[str]:
        topic, index = self._partition(place)
        request = DescribeProducersRequest([DescribeProducersRequest.TopicRequest(topic, [index])])
        found = self.target.call(request, 0).topics[0].partitions[0]
        if found.error_code:
            yield errors.name_of(found.error_code)
        for p in sorted(found.active_producers, key=lambda p: int(p.producer_id)):
            yield f"pid={p.producer_id}"
            yield f"epoch={p.producer_epoch}"
            yield f"sequence={p.last_sequence}"
            yield f"coordinator={p.coordinator_epoch}"
            yield f"start={p.current_txn_start_offset}"

    def do_find(self, key: str) -> Iterator[str]:
        request = FindCoordinatorRequest(self._name(key), 1, [self._name(key)])
        reply = self.target.call(request, self._version)
        found = reply.coordinators[0] if self._version >= 4 else reply
        yield f"node={found.node_id}" if not found.error_code else errors.name_of(found.error_code)

    def do_read(self, place: str, isolation: str = "uncommitted") -> Iterator[str]:
        """The values that a consumer would deliver to its application."""
        fetched = self._fetch(place, isolation == "committed")
        rule = Isolation((a.first_offset, a.producer_id) for a in fetched.aborted_transactions or ())
        found = False
        for header, batch in iter_batches(fetched.records or b""):
            if rule.delivers(header, batch):
                for record in iter_records(batch):
                    found = True
                    yield (record.value or b"").decode()
        if not found:
            yield "nothing"

    def do_log(self, place: str) -> Iterator[str]:
        """Everything in a partition: values, and markers with their producer's epoch."""
        for header, batch in iter_batches(self._fetch(place, False).records or b""):
            marker = decode_marker(batch) if header.is_control else None
            if marker is not None:
                yield f"{'COMMIT' if marker.commit else 'ABORT'}/{marker.producer_epoch}"
            else:
                yield from ((record.value or b"").decode() for record in iter_records(batch))

    def do_ends(self, place: str) -> Iterator[str]:
        fetched = self._fetch(place, False)
        yield f"lso={fetched.last_stable_offset}"
        yield f"hw={fetched.high_watermark}"
        topic, index = self._partition(place)
        for isolation in (1, 0):
            partition = ListOffsetsRequest.ListOffsetsPartition(index, -1, -1)
            wanted = [ListOffsetsRequest.ListOffsetsTopic(topic, [partition])]
            found = self.target.call(ListOffsetsRequest(-1, isolation, wanted), 5).topics[0].partitions[0]
            expected = fetched.last_stable_offset if isolation else fetched.high_watermark
            assert found.offset == expected, f"ListOffsets says {found.offset}, Fetch {expected}"

    def _fetch(self, place: str, read_committed: bool) -> Any:
        topic, index = self._partition(place)
        partition = FetchRequest.FetchPartition(index, -1, 0, partition_max_bytes=MAX_BYTES)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=MAX_BYTES,
            isolation_level=int(read_committed),
            topics=[FetchRequest.FetchTopic(topic, partitions=[partition])],
        )
        fetched = self.target.call(request, 11).responses[0].partitions[0]
        assert fetched.error_code == 0, errors.name_of(fetched.error_code)
        assert (fetched.aborted_transactions is not None) == read_committed
        return fetched

    # --- groups -------------------------------------------------------------------------------------------

    def do_join(self, group: str, member: str, instance: str | None = None) -> Iterator[str]:
        """Join as the only member, which is also the leader, and sync: the group is stable then."""
        protocol = JoinGroupRequest.JoinGroupRequestProtocol("range", b"")
        known = self.members.get(member, "")
        request = JoinGroupRequest(self._group(group), 30_000, 30_000, known, instance, "consumer", [protocol])
        # From v4 on a new member without an instance has to join a second time, with the member id that it gets.
        reply = self.target.call(request, 5 if instance else 3)
        if reply.error_code:
            yield errors.name_of(reply.error_code)
            return
        self.members[member] = reply.member_id
        assignment = SyncGroupRequest.SyncGroupRequestAssignment(reply.member_id, b"")
        sync = SyncGroupRequest(
            self._group(group), reply.generation_id, reply.member_id, instance, assignments=[assignment]
        )
        assert self.target.call(sync, 3).error_code == 0
        yield f"generation={reply.generation_id}"

    def do_leave(self, group: str, member: str) -> Iterator[str]:
        reply = self.target.call(LeaveGroupRequest(self._group(group), self.members[member]), 2)
        yield errors.name_of(reply.error_code)

    def do_delete_group(self, group: str) -> Iterator[str]:
        reply = self.target.call(DeleteGroupsRequest([self._group(group)]), 2)
        yield errors.name_of(reply.results[0].error_code)

    def do_delete_offset(self, group: str, place: str) -> Iterator[str]:
        topic, index = self._partition(place)
        kind = OffsetDeleteRequest.OffsetDeleteRequestTopic
        partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(index)
        reply = self.target.call(OffsetDeleteRequest(self._group(group), [kind(topic, [partition])]), 0)
        yield errors.name_of(reply.error_code or reply.topics[0].partitions[0].error_code)

    def do_commit_plain(self, group: str, place: str, *rest: str) -> Iterator[str]:
        """`retention=` is the retention time of the offset in milliseconds, which v4 was the last version to have."""
        _, given = options(list(rest))
        place, _, offset = place.partition("@")
        topic, index = self._partition(place)
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(index, int(offset), committed_metadata="")
        topics = [OffsetCommitRequest.OffsetCommitRequestTopic(topic, partitions=[partition])]
        retention_ms = int(given.get("retention", -1))
        request = OffsetCommitRequest(self._group(group), retention_time_ms=retention_ms, topics=topics)
        reply = self.target.call(request, 4 if given else 5)
        yield errors.name_of(reply.topics[0].partitions[0].error_code)

    def do_fetch_offset(self, group: str, place: str, stable: str = "") -> Iterator[str]:
        topic, index = self._partition(place)
        wanted = [OffsetFetchRequest.OffsetFetchRequestTopic(topic, [index])]
        request = OffsetFetchRequest(self._group(group), wanted, require_stable=stable == "stable")
        reply = self.target.call(request, 7)
        if reply.error_code:
            yield errors.name_of(reply.error_code)  # The whole group: its coordinator is still loading.
            return
        found = reply.topics[0].partitions[0]
        yield errors.name_of(found.error_code) if found.error_code else f"offset={found.committed_offset}"
