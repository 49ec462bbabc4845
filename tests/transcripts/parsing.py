"""Reads transcripts: one line per request, with the expected reply and the state after it.

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

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

# The versions of requests that TV1 and TV2 clients use.
TV1_REQUESTS = {"init": 4, "add": 3, "offsets": 3, "end": 4, "commit-offset": 3, "produce": 11}
TV2_REQUESTS = {"init": 5, "add": 3, "offsets": 4, "end": 5, "commit-offset": 5, "produce": 12}
OTHERS = {"verify": 5, "marker": 2, "list": 2, "find": 4}


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


def options(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The plain words, and the `name=value` words as a dictionary."""
    plain = [w for w in words if "=" not in w]
    return plain, dict(w.split("=", 1) for w in words if "=" in w)
