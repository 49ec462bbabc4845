"""Fencepost beside Apache Kafka and librdkafka's mock cluster, in one run on one machine.

    python -m benchmarks [--only NAMES] [--contenders NAMES] [--repetitions N] [--seconds S] [--results FILE]
    python -m benchmarks --only fetch-1KiB,produce --against ../other --contenders fencepost,against

The contenders take turns, so that noise affects all of them; the figures are medians of the repetitions after one that
warms up. Compare the ratios of one run: absolute figures depend on the machine. `--against` names the folder of another
version of the repository. `--results` keeps the figures in a file, beside those of other cases that are in it already;
`python -m benchmarks.report` makes the tables and plots of the documents from it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks.cases import CASES, Case, chosen, raise_file_limit, warm_up
from benchmarks.contenders import AGAINST, FENCEPOST, KAFKA, MOCK, Contender, contender, end_tidily, why_not
from benchmarks.figures import Figures
from benchmarks.report import comparison
from benchmarks.results import CaseResult, Results, commit_of, keep, machine, now
from fencepost.cli.streams import say

# The share of the machine that others may use.
DISTURBED = 0.1
# What a line of progress has.
SHOWN = ("per_s", "p50", "p99", "broker_cpu_us", "broker_cores", "client_cores", "others_share", "seconds", "memory_mb")
FLUSHED: dict[str, dict[str, object]] = {
    FENCEPOST: {"fencepost.flush.on.commit": "true"},
    AGAINST: {"fencepost.flush.on.commit": "true"},
    KAFKA: {"log.flush.interval.messages": 1},
}


def undisturbed(case: Case, contender: Contender, seconds: float) -> Figures:
    """A run of a case. If others took much of the machine meanwhile, there is a second one: the quieter counts."""
    first = case.run(contender, seconds)
    if first.get("others_share", 0.0) <= DISTURBED:
        return first
    say(f"{case.name}, {contender.kind}: others took {first['others_share'] * 100:.0f} % of the machine; once more")
    return min(first, case.run(contender, seconds), key=lambda figures: figures["others_share"])


def measure(
    case: Case, contenders: Sequence[Contender], repetitions: int, seconds: float
) -> dict[str, dict[str, list[float]]]:
    """The figures of each contender, one value a repetition."""
    found: dict[str, dict[str, list[float]]] = {each.kind: {} for each in contenders}
    for each in contenders:
        if case.counted in ("transaction", "record"):
            warm_up(each)
        case.prepare(each)
    count = min(repetitions, case.most_repetitions)
    for repetition in range(0 if case.warms_up else 1, count + 1):
        for each in contenders:
            figures = undisturbed(case, each, seconds) if repetition else case.run(each, seconds / 2)
            if case.record_bytes:
                figures["broker_cpu_us_mb"] = figures["broker_cpu_us"] / case.record_bytes * 1e6
            shown = ", ".join(f"{name} {value:,.3g}" for name, value in figures.items() if name in SHOWN)
            turn = f"repetition {repetition} of {count}" if repetition else "warm-up"
            say(f"{case.name}, {each.kind}, {turn}: {shown}")
            if repetition:
                for name, value in figures.items():
                    found[each.kind].setdefault(name, []).append(value)
    for each in contenders:
        case.clean_up(each)
    return found


def run(
    cases: Sequence[Case], kinds: Sequence[str], repetitions: int, seconds: float, flush: bool, other: Path | None
) -> Generator[tuple[str, CaseResult], None, None]:
    """Each case by its name, as soon as it is measured."""
    with ExitStack() as stack:
        running = []
        for kind in kinds:
            if problem := why_not(kind):
                say(f"{kind} is left out: {problem}")
                continue
            settings = FLUSHED.get(kind) if flush else None
            running.append(stack.enter_context(contender(kind, other=other, settings=settings)))
        for number, case in enumerate(cases, 1):
            say(f"case {number} of {len(cases)}: {case.title}")
            those = [each for each in running if each.kind in case.contenders]
            began = time.perf_counter()
            found = measure(case, those, repetitions, seconds)
            yield case.name, CaseResult(commit_of(), now(), time.perf_counter() - began, found)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"The cases: {', '.join(CASES)}. A name also stands for all that begin with it and a hyphen.",
    )
    parser.add_argument("--only", metavar="NAMES", help="cases, with commas")
    parser.add_argument("--contenders", metavar="NAMES", help=f"of {KAFKA},{FENCEPOST},{AGAINST},{MOCK}")
    parser.add_argument("--against", type=Path, metavar="DIR", help="the folder of another version of the repository")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each repetition")
    parser.add_argument("--flush", action="store_true", help="sync every commit to disk (fsync), on all brokers")
    parser.add_argument("--results", type=Path, metavar="FILE", help="keep the figures in this file")
    options = parser.parse_args()
    kinds = [KAFKA, FENCEPOST, *([AGAINST] if options.against else []), MOCK]
    if options.contenders:
        if unknown := set(options.contenders.split(",")) - {KAFKA, FENCEPOST, AGAINST, MOCK}:
            parser.error(f"no contender {', '.join(sorted(unknown))}")
        kinds = options.contenders.split(",")
    if AGAINST in kinds and not options.against:
        parser.error("the contender `against` needs --against DIR")
    end_tidily()
    raise_file_limit()
    other = options.against.resolve() if options.against else None
    found = Results(machine(), {})
    measured = run(chosen(options.only), kinds, options.repetitions, options.seconds, options.flush, other)
    # Closing it ends the brokers.
    with closing(measured):
        for name, case in measured:
            found.cases[name] = case
            if options.results:
                keep(options.results, found)
    print("\n".join(comparison(found)))


if __name__ == "__main__":
    main()
