"""Tables and plots from the file of results, for the terminal and for the documents.

    python -m benchmarks.report

It writes the plots in docs/pictures and the generated blocks of docs/benchmarks.md from docs/benchmarks.json, which
`make bench` writes. Nothing in those blocks is written by hand; a test fails while one is out of date.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence

from benchmarks.cases import CASES, GROWTH, THROUGHPUT, TRANSACTION_SIZES
from benchmarks.contenders import FENCEPOST, KAFKA, MOCK, TITLES
from benchmarks.figures import median, ratio
from benchmarks.goals import GOALS, Goal
from benchmarks.plots import PLOTS
from benchmarks.results import ROOT, Results, read

RESULTS = ROOT / "docs/benchmarks.json"
PICTURES = ROOT / "docs/pictures"
COLUMNS = (KAFKA, FENCEPOST, MOCK)
MISSING = "-"
NAMES = {
    "per_s": "{counted}s/s",
    "p50": "p50, ms",
    "p99": "p99, ms",
    "broker_cpu_us": "broker CPU, us per {counted}",
    "broker_cpu_us_mb": "broker CPU, us per MB",
    "client_cpu_us": "client CPU, us per {counted}",
    "broker_cores": "cores that the broker uses",
    "client_cores": "cores that the client uses",
    "others_share": "share of the machine that others use",
    "seconds": "s",
    "memory_mb": "memory, MB",
    "core_share": "share of a core",
    "memory_before_mb": "memory before, MB",
    "init_per_s": "ids initialised, per s",
    "commit_per_s": "transactions of one record, per s",
    "commit_cpu_us": "broker CPU, us per transaction",
    "clean_s": "ready after a clean stop, s",
    "killed_s": "ready after kill -9, s",
    "clean_cpu_s": "CPU time of it, s",
    "killed_cpu_s": "CPU time after kill -9, s",
    "empty_clean_s": "empty: ready after a clean stop, s",
    "empty_clean_cpu_s": "empty: CPU time of it, s",
    "empty_killed_s": "empty: ready after kill -9, s",
    "empty_killed_cpu_s": "empty: CPU time after kill -9, s",
    "memory_after_start_mb": "memory after the start, MB",
}
LATENCY = ("transactions-1", "transactions-8", "commit-to-consumer")
LIFE = (
    ("start", "seconds"),
    ("restart", "seconds"),
    ("memory-idle", "memory_mb"),
    ("memory-after-load", "memory_mb"),
    ("idle-connections", "memory_mb"),
    ("idle-connections", "core_share"),
)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def number(value: float | None) -> str:
    """Three digits that mean something, with commas."""
    if value is None:
        return MISSING
    if abs(value) >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}" if value else "0"


def times(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{value:.2f}" if value >= 0.1 or not value else f"{value:.2g}"


def name_of(case: str, figure: str) -> str:
    return NAMES[figure].format(counted=CASES[case].counted if case in CASES else "")


# --- for the terminal -------------------------------------------------------------------------------------


def comparison(results: Results) -> Iterator[str]:
    """Every figure of every contender, and the ratio of the first that is Fencepost to each of the others."""
    kinds = list(dict.fromkeys(kind for case in results.cases.values() for kind in case.figures))
    others = [kind for kind in kinds if kind != FENCEPOST] if FENCEPOST in kinds else []

    def rows() -> Iterator[list[str]]:
        for case_name, case in results.cases.items():
            there = list(dict.fromkeys(figure for figures in case.figures.values() for figure in figures))
            for figure in (name for name in NAMES if name in there):
                values = [number(median(case.of(kind), figure)) for kind in kinds]
                ratios = [times(ratio(case.of(FENCEPOST), case.of(kind), figure)) for kind in others]
                yield [case_name, name_of(case_name, figure), *values, *ratios]

    return table(["case", "figure", *kinds, *(f"fencepost / {kind}" for kind in others)], rows())


# --- for the documents ------------------------------------------------------------------------------------


def throughput(results: Results) -> Iterator[str]:
    """Per second, and the ratios."""
    head = ["per second", *(TITLES[kind] for kind in COLUMNS), "to Apache Kafka", "to the mock"]

    def row(case: str) -> list[str]:
        found = [results.of(case, kind) for kind in COLUMNS]
        ratios = [times(ratio(found[1], other, "per_s")) for other in (found[0], found[2])]
        return [f"{CASES[case].title} ({CASES[case].counted}s)", *(number(median(f, "per_s")) for f in found), *ratios]

    return table(head, (row(case) for case in THROUGHPUT if case in results.cases))


def cpu(results: Results) -> Iterator[str]:
    """What the broker and the client use."""
    head = [
        "CPU time, us",
        "broker: Apache Kafka",
        "broker: Fencepost",
        "ratio",
        "client of Fencepost",
        "cores in use: Fencepost",
        "its client",
        "others",
    ]

    def row(case: str) -> list[str]:
        ours, theirs = results.of(case, FENCEPOST), results.of(case, KAFKA)
        return [
            f"{CASES[case].title} (per {CASES[case].counted})",
            number(median(theirs, "broker_cpu_us")),
            number(median(ours, "broker_cpu_us")),
            times(ratio(ours, theirs, "broker_cpu_us")),
            number(median(ours, "client_cpu_us")),
            times(median(ours, "broker_cores")),
            times(median(ours, "client_cores")),
            _percent(median(ours, "others_share")),
        ]

    cases = (*THROUGHPUT, "commit-to-consumer")
    return table(head, (row(case) for case in cases if case in results.cases))


def _percent(share: float | None) -> str:
    return MISSING if share is None else f"{share * 100:.0f} %"


def latency(results: Results) -> Iterator[str]:
    head = ["ms", "", *(TITLES[kind] for kind in COLUMNS), "to Apache Kafka"]

    def rows() -> Iterator[list[str]]:
        for case in LATENCY:
            for figure in ("p50", "p99"):
                found = [results.of(case, kind) for kind in COLUMNS]
                values = [number(median(each, figure)) for each in found]
                yield [CASES[case].title, figure, *values, times(ratio(found[1], found[0], figure))]

    return table(head, rows())


def life(results: Results) -> Iterator[str]:
    head = ["", "", *(TITLES[kind] for kind in COLUMNS), "to Apache Kafka"]

    def row(case: str, figure: str) -> list[str]:
        found = [results.of(case, kind) for kind in COLUMNS]
        values = [number(median(each, figure)) for each in found]
        return [CASES[case].title, name_of(case, figure), *values, times(ratio(found[1], found[0], figure))]

    return table(head, (row(case, figure) for case, figure in LIFE))


def goals(results: Results) -> Iterator[str]:
    def row(goal: Goal) -> list[str]:
        value = goal.reached(results)
        to = f", ratio to {'the mock' if goal.against == MOCK else TITLES[goal.against]}"
        bound = f"at {'least' if goal.is_minimum else 'most'} {number(goal.bound)}"
        verdict = MISSING if value is None else "met" if goal.is_met(value) else "**not met**"
        return [f"{CASES[goal.case].title}: {name_of(goal.case, goal.figure)}{to}", bound, times(value), verdict]

    return table(["", "goal", "measured", ""], (row(goal) for goal in GOALS))


def sizes(results: Results) -> Iterator[str]:
    """Records in transactions beside plain records, as many at a time."""
    head = ["records at a time", "", "in transactions, records/s", "plain, records/s", "ratio", "to a plain stream"]

    def rows() -> Iterator[list[str]]:
        for records in TRANSACTION_SIZES:
            for kind in (KAFKA, FENCEPOST):
                inside, plain = (results.of(f"size-{records}{end}", kind) for end in ("", "-plain"))
                stream = results.of("produce-100B", kind)
                values = [number(median(each, "per_s")) for each in (inside, plain)]
                ratios = [times(ratio(inside, each, "per_s")) for each in (plain, stream)]
                yield [f"{records:,}", TITLES[kind], *values, *ratios]

    return table(head, rows())


def growth(results: Results) -> Iterator[str]:
    head = ["", "", "broker CPU, us per transaction: Apache Kafka", "Fencepost", "p50, ms: Apache Kafka", "Fencepost"]

    def rows() -> Iterator[list[str]]:
        for what, (case, points) in GROWTH.items():
            for point in points:
                found = [results.of(f"{case}-{point}", kind) for kind in (KAFKA, FENCEPOST)]
                values = [number(median(each, figure)) for figure in ("broker_cpu_us", "p50") for each in found]
                yield [what, f"{point:,}", *values]

    return table(head, rows())


def ids(results: Results) -> Iterator[str]:
    """Many transactional ids, by the number of partitions of their state."""
    columns = [
        (name, kind)
        for name, case in results.cases.items()
        if name.startswith("ids-")
        for kind in (KAFKA, FENCEPOST)
        if kind in case.figures
    ]

    def head(name: str, kind: str) -> str:
        _, count, partitions = name.split("-")
        return f"{TITLES[kind]}: {int(count):,} ids, {partitions} partitions"

    figures = ("init_per_s", "commit_per_s", "commit_cpu_us", "memory_mb", "core_share", "clean_s", "killed_s")
    rows = (
        [NAMES[figure], *(number(median(results.of(name, kind), figure)) for name, kind in columns)]
        for figure in figures
    )
    return table(["", *(head(*column) for column in columns)], rows)


def partitions(results: Results) -> Iterator[str]:
    """Starts, by the number of partitions, and the CPU time that the process had used when it was ready."""
    figures = ("empty_clean", "empty_killed", "clean", "killed")
    head = [
        "partitions",
        "",
        "empty, after a clean stop, s (CPU time, s)",
        "empty, after kill -9",
        "a record in each, after a clean stop",
        "a record in each, after kill -9",
        "memory then, MB",
    ]

    def row(name: str, kind: str) -> list[str]:
        found = results.of(name, kind)
        starts = [(median(found, f"{figure}_s"), median(found, f"{figure}_cpu_s")) for figure in figures]
        shown = [MISSING if not took else f"{number(took)} ({number(cpu_s)})" for took, cpu_s in starts]
        memory = number(median(found, "memory_after_start_mb"))
        return [f"{int(name.partition('-')[2]):,}", TITLES[kind], *shown, memory]

    names = [name for name in results.cases if name.startswith("partitions-") and name.count("-") == 1]
    return table(head, (row(name, kind) for name in names for kind in (KAFKA, FENCEPOST)))


def setting(results: Results) -> Iterator[str]:
    """Where and when it was measured, and whether the machine was idle."""
    machine = ", ".join(f"{name} {value}" for name, value in results.machine.items())
    cases = list(results.cases.values())
    shares = [value for case in cases for figures in case.figures.values() for value in figures.get("others_share", ())]
    commits = ", ".join(dict.fromkeys(case.commit for case in cases))
    dates = sorted({case.date for case in cases})
    yield f"- **Machine:** {machine}."
    yield f"- **Commit:** {commits}, on {' to '.join(dict.fromkeys((dates[0], dates[-1])))}."
    counts = {len(found["per_s"]) for case in THROUGHPUT if (found := results.of(case, FENCEPOST))}
    if counts:
        yield f"- **Repetitions** of each case and contender: {' to '.join(map(str, sorted(counts)))}."
    if shares:
        yield (
            f"- **Other work** took {statistics.median(shares) * 100:.0f} % of the machine's CPU time (median of all "
            f"repetitions; at most {max(shares) * 100:.0f} %)."
        )


BLOCKS: dict[str, Callable[[Results], Iterator[str]]] = {
    each.__name__: each for each in (setting, goals, throughput, cpu, latency, life, sizes, growth, ids, partitions)
}


def block(name: str) -> Iterator[str]:
    """A generated block of docs/benchmarks.md."""
    return BLOCKS[name](read(RESULTS))


def plots(results: Results) -> dict[str, str]:
    """The plots by their file names."""
    return {f"benchmark-{name}.svg": draw(results) for name, draw in PLOTS.items()}


def main() -> None:
    # It knows all generated blocks, and so also those of this module.
    from scripts import diagrams

    for name, picture in plots(read(RESULTS)).items():
        (PICTURES / name).write_text(picture)
        print(f"wrote docs/pictures/{name}")
    diagrams.main()


if __name__ == "__main__":
    main()
