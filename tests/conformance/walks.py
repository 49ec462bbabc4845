"""Random walks: requests of producers that mostly know what they are doing, written down as a transcript.

    transcript = walk(seed=7, length=60, prefix="walk-7.")
    run(transcript, apache, "walk-7.")

The walk is made on the pure broker, whose replies become what the transcript expects; so another broker that runs it
must give the same replies, and a mistake of ours shows as a line that Apache Kafka does not answer in this way. `text`
is the transcript to keep if one was found.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.pure_broker import PureBroker
from tests.transcripts.commands import looking
from tests.transcripts.names import Names
from tests.transcripts.parsing import OTHERS, TV2_REQUESTS, Transcript, parse_step
from tests.transcripts.running import Stage

IDS = ("t1", "t2", "t3")
PLACES = ("orders-0", "orders-1")
GROUPS = ("g1", "g2")
STRANGER = 987654
PRODUCE_VERSIONS = (3, 8, 9, 10, 11, 11, 12, 12, 12, 13)
LAST_SEQUENCE = 2**31 - 1


@dataclass
class Client:
    """The producer id and epoch that a producer received last, and the sequences that it has sent."""

    name: str
    producer_id: int = STRANGER
    epoch: int = 0
    next: dict[tuple[int, int, str], int] = field(default_factory=dict)
    # The lowest sequences that were to be verified, and not written since; see `_may_be_behind`.
    asked: dict[tuple[int, str], int] = field(default_factory=dict)


class Walker:
    def __init__(self, seed: int, prefix: str) -> None:
        self.rng = random.Random(seed)
        self.broker = PureBroker()
        self.stage = Stage(self.broker, Names(prefix), TV2_REQUESTS | OTHERS)
        self.clients = [Client(name) for name in IDS]
        self.lines: list[str] = []
        self.values = 0
        # What was stored: producer id, epoch, place, first sequence, count.
        self.sent: set[tuple[int, int, str, int, int]] = set()

    def run(self, length: int) -> Transcript:
        transcript = Transcript("walk")
        self.step("topic orders 2")
        for client in self.clients:
            self.init(client, fresh=True)
        while len(self.lines) < length:
            self.choose()
        for place in PLACES:
            self.step(f"read {place} committed")
            self.step(f"log {place}")
            self.step(f"ends {place}")
        transcript.steps = [parse_step(n, line) for n, line in enumerate(self.lines, 1)]
        return transcript

    def step(self, request: str, about: Client | None = None) -> list[str]:
        """Ask, and write down what comes back."""
        parsed = parse_step(len(self.lines) + 1, request)
        words = self.stage.answer(parsed)
        for word in words:
            if word.startswith("pid="):
                number = int(word.removeprefix("pid="))
                self.stage.client.names.producer_ids.setdefault(str(number), number)
        state = [] if about is None else [looking.state_of(self.stage.client, about.name)]
        self.lines.append(f"{request} -> {' '.join(words + state)}")
        self.broker.advance(1)
        return words

    # --- choices ------------------------------------------------------------------------------------------

    def choose(self) -> None:
        client = self.rng.choice(self.clients)
        moves = {
            self.init: 6,
            self.add: 14,
            self.verify: 3,
            self.produce: 30,
            self.end: 16,
            self.offsets: 6,
            self.commit_offset: 12,
            self.commit_plain: 2,
            self.produce_plain: 3,
            self.marker: 3,
            self.look: 10,
        }
        move = self.rng.choices(list(moves), list(moves.values()))[0]
        move(client)

    def who(self, client: Client) -> str:
        """Usually the client itself; now and then another epoch, or another client."""
        other = self.rng.choice(self.clients)
        odds = [
            (f"{client.producer_id}/{client.epoch}", 80),
            (f"{client.producer_id}/{max(0, client.epoch - 1)}", 9),
            (f"{client.producer_id}/{client.epoch + 1}", 4),
            (f"{other.producer_id}/{other.epoch}", 4),
            (f"{STRANGER}/{client.epoch}", 3),
        ]
        return self.rng.choices([who for who, _ in odds], [odd for _, odd in odds])[0]

    def init(self, client: Client, fresh: bool = False) -> None:
        version = self.rng.randrange(6)
        named = f" {self.who(client)}" if not fresh and self.rng.random() < 0.5 else ""
        words = self.step(f"init.v{version} {client.name}{named}", client)
        self.learn(client, words)

    def learn(self, client: Client, words: list[str]) -> None:
        if len(words) == 2:
            client.producer_id, client.epoch = (int(word.partition("=")[2]) for word in words)

    def add(self, client: Client) -> None:
        places = self.rng.sample(PLACES, self.rng.choice((1, 1, 2)))
        if self.rng.random() < 0.05:
            places.append("orders-7")
        self.step(f"add.v{self.rng.randrange(6)} {client.name} {self.who(client)} {' '.join(places)}", client)

    def verify(self, client: Client) -> None:
        self.step(f"verify.v{self.rng.choice((4, 5))} {client.name} {self.who(client)} {' '.join(PLACES)}", client)

    def offsets(self, client: Client) -> None:
        group = self.rng.choice(GROUPS)
        self.step(f"offsets.v{self.rng.randrange(5)} {client.name} {self.who(client)} {group}", client)

    def commit_offset(self, client: Client) -> None:
        self.values += 1
        where = f"{self.rng.choice(GROUPS)} {self.rng.choice(PLACES)}@{self.values}"
        self.step(f"commit-offset.v{self.rng.randrange(6)} {client.name} {self.who(client)} {where}", client)

    def commit_plain(self, client: Client) -> None:
        self.values += 1
        self.step(f"commit-plain {self.rng.choice(GROUPS)} {self.rng.choice(PLACES)}@{self.values}")

    def produce_plain(self, client: Client) -> None:
        self.values += 1
        self.step(f"produce.v11 - -1/-1 -1 {self.rng.choice(PLACES)} p{self.values}")

    def produce(self, client: Client) -> None:
        place, who = self.rng.choice(PLACES), self.who(client)
        producer_id, _, epoch = who.partition("/")
        key = (int(producer_id), int(epoch), place)
        wanted = client.next.get(key, 0)
        sequence = self.rng.choices([wanted, max(0, wanted - 1), wanted + 1, 0], [85, 6, 4, 5])[0]
        if self._may_be_behind(client, key, sequence):
            return
        version, count = self.rng.choice(PRODUCE_VERSIONS), self.rng.choice((1, 1, 2))
        if (*key, sequence, count) in self.sent:
            return  # In the next transaction Apache Kafka takes it for a duplicate; see deviations.md.
        self.values += 1
        values = [f"v{self.values}.{n}" for n in range(count)]
        before = self._end(place)
        words = self.step(f"produce.v{version} {client.name} {who} {sequence} {place} {' '.join(values)}", client)
        if words == [f"offset={before}"]:
            self.sent.add((*key, sequence, count))
            client.next[key] = sequence + len(values) & LAST_SEQUENCE
            client.asked.pop((key[0], place), None)
        else:
            lowest = client.asked.get((key[0], place), sequence)
            client.asked[key[0], place] = min(lowest, sequence)

    def _may_be_behind(self, client: Client, key: tuple[int, int, str], sequence: int) -> bool:
        """Whether Apache Kafka may refuse it for a lower sequence that was refused before; see deviations.md."""
        return any(sequence > other.asked.get((key[0], key[2]), LAST_SEQUENCE) for other in self.clients)

    def _end(self, place: str) -> int:
        return int(looking.fetch(self.stage.client, place, False).high_watermark)

    def end(self, client: Client) -> None:
        how = self.rng.choice(("commit", "commit", "abort"))
        version, who = self.rng.randrange(6), self.who(client)
        words = self.step(f"end.v{version} {client.name} {who} {how}", client)
        if version == 5 and words == ["PRODUCER_FENCED"] and self._is_one_behind(client, who):
            # Apache Kafka takes it for a retry, even of a transaction without an epoch of its own; see deviations.md.
            # Nothing has changed, so the walk goes on without it.
            self.lines.pop()
        self.learn(client, words)

    def _is_one_behind(self, client: Client, who: str) -> bool:
        """Whether the request had the epoch before the current one, after a transaction that is complete."""
        said = list(looking.describe(self.stage.client, client.name))
        current = next((word.removeprefix("epoch=") for word in said if word.startswith("epoch=")), "0")
        return said[0].startswith("Complete") and int(who.partition("/")[2]) == int(current) - 1

    def marker(self, client: Client) -> None:
        """As an administrator's abort of a transaction that hangs: the coordinator does not get to hear of it."""
        version = self.rng.choice((1, 2))
        tv = self.rng.choice((0, 2)) if version == 2 else 0
        how = self.rng.choice(("abort", "abort", "commit"))
        self.step(f"marker.v{version} {client.producer_id}/{client.epoch} {how} {self.rng.choice(PLACES)} tv={tv}")

    def look(self, client: Client) -> None:
        place = self.rng.choice(PLACES)
        request = self.rng.choice(
            (
                f"ends {place}",
                f"read {place} committed",
                f"log {place}",
                f"producers {place}",
                f"describe {client.name}",
                f"fetch-offset {self.rng.choice(GROUPS)} {place}",
                f"fetch-offset {self.rng.choice(GROUPS)} {place} stable",
                "list.v1",
            )
        )
        self.step(request)


def walk(seed: int, length: int, prefix: str) -> Transcript:
    """`prefix` is what it will be run with: names say which of the coordinators' partitions are used."""
    return Walker(seed, prefix).run(length)


def text(transcript: Transcript) -> str:
    return "\n".join(step.text for step in transcript.steps)
