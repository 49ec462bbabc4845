"""Reads and runs tests/conformance/checks.txt: every check of every transaction request, in every version.

    for check in parse_checks(path):
        for version in check.versions:
            run_check(check, version, stage)

Each run is a short transcript with names of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fencepost.broker.api import APIS
from tests.transcripts.names import Names
from tests.transcripts.parsing import OTHERS, TV2_REQUESTS, Step, parse_step
from tests.transcripts.running import Mismatch, Stage
from tests.transcripts.target import Target

CHECKS = Path(__file__).with_name("checks.txt")
# As checks.txt calls it, and as the broker knows it.
SHARED_TOPIC, SHARED_NAME = "orders", "orders-of-checks"
_VERSIONS = re.compile(r" \[(\d+)(?:-(\d+))?\]")
_API = re.compile(r"(\w+) (\d+)(?:-(\d+))?$")


@dataclass
class Check:
    api: str
    name: str
    versions: range
    number: int
    lines: list[tuple[int, str]] = field(default_factory=list)
    see: list[str] = field(default_factory=list)


def parse_checks(path: Path = CHECKS) -> list[Check]:
    found: list[Check] = []
    api, served = "", range(0)
    for number, raw in enumerate(path.read_text().splitlines(), 1):
        text = raw.partition("#")[0].rstrip()
        indent = len(text) - len(text.lstrip())
        text = text.strip()
        if not text:
            continue
        if indent == 0:
            heading = _API.match(text)
            assert heading is not None, f"checks.txt:{number}: {text}"
            api, served = heading[1], versions_of(heading[2], heading[3])
        elif indent == 2:
            limit = _VERSIONS.search(text)
            versions = served if limit is None else versions_of(limit[1], limit[2])
            found.append(Check(api, _VERSIONS.sub("", text), versions, number))
        elif text.startswith("see "):
            found[-1].see.append(text.removeprefix("see ").strip())
        else:
            found[-1].lines.append((number, text))
    return found


def versions_of(first: str, last: str | None) -> range:
    return range(int(first), int(last or first) + 1)


def steps(check: Check, version: int) -> Iterator[Step]:
    """The steps of one run: `*` becomes the version, and of several expectations this version's is left."""
    for number, text in check.lines:
        request, arrow, reply = text.partition("->")
        request = re.sub(r"^([\w-]+)\*", rf"\1.v{version}", request)
        replies = [reply_in(part, version) for part in reply.split("~")]
        yield parse_step(number, request + arrow + "~".join(replies))


def reply_in(reply: str, version: int) -> str:
    limits = list(_VERSIONS.finditer(reply))
    if not limits:
        return reply
    ends = [limit.start() for limit in limits[1:]] + [len(reply)]
    for limit, end in zip(limits, ends):
        if version in versions_of(limit[1], limit[2]):
            return reply[limit.end() : end]
    raise AssertionError(f"no reply for v{version} in: {reply}")


class CheckNames(Names):
    """The names in one run of one check: only the topic is shared with others."""

    def topic(self, topic: str) -> str:
        return SHARED_NAME if topic == SHARED_TOPIC else super().topic(topic)

    def short(self, name: str) -> str:
        return super().short(name.replace(SHARED_NAME, SHARED_TOPIC))


def stage_for(target: Target, prefix: str) -> Stage:
    return Stage(target, CheckNames(prefix), TV2_REQUESTS | OTHERS)


def prepare(target: Target) -> None:
    """What all runs share: the topic, and the topics that the coordinators keep."""
    stage = stage_for(target, "")
    for command, *words in (("topic", SHARED_NAME, "3"), ("offsets", "nobody", "1/0", "group")):
        stage.run(Step(0, command, command, None, words, None))


def run_check(check: Check, version: int, target: Target, prefix: str) -> None:
    """Raises Mismatch with the line that is not answered as it says."""
    stage = stage_for(target, prefix)
    for step in steps(check, version):
        try:
            stage.run(step)
        except Mismatch as e:
            where = f"checks.txt:{step.line}: {check.api} v{version}, {check.name}"
            raise Mismatch(f"{where}\n  {step.text}\n  {e}") from None


def run_checks(api: str, target: Target, prefix: str) -> list[str]:
    """Run all checks of an API in all their versions; what is not answered as it should be."""
    wrong = []
    for check in parse_checks():
        if check.api == api:
            for version in check.versions:
                try:
                    run_check(check, version, target, f"{prefix}{check.number}.v{version}.")
                except Mismatch as e:
                    wrong.append(str(e))
    return wrong


def apis() -> list[str]:
    return list(dict.fromkeys(check.api for check in parse_checks()))


def served_versions(name: str) -> range:
    """What ApiVersions offers."""
    [api] = [api for api in APIS.values() if api.name == name]
    return range(api.first, api.last + 1)
