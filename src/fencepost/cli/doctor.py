"""`fencepost doctor`: looks for everything that is wrong, or may go wrong, with the transactions of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from fencepost.cli.options import ClusterOptions, Duration, as_json_option, cluster_options
from fencepost.cli.streams import Failure, say

if TYPE_CHECKING:
    from fencepost.cli.output import Block
    from fencepost.diagnose.doctor.report import DoctorReport


@click.command()
@click.option(
    "--max-age",
    "max_age_ms",
    type=Duration(),
    default="60s",
    show_default=True,
    help="Readers that wait for a transaction for longer than this are a problem; from one second on, they are a risk.",
)
@cluster_options
@as_json_option
def doctor(max_age_ms: int, cluster: ClusterOptions, as_json: bool) -> None:
    """Find problems and risks in the transactions of a cluster

    Looks for readers that wait, hanging transactions, transactions near their timeout or without markers, producers
    that fence each other, consumer groups behind a last stable offset, settings with which fencing does not last, and
    transactional ids that are badly chosen. The worst comes first, each with the command to run next. Changes nothing.
    A command that begins with kafka-configs is a tool of Kafka: bin/kafka-configs.sh in Apache's archive.

    A problem affects clients now, and a risk may become a problem. Exit codes: 0 nothing was found, or only
    information; 1 a problem or a risk was found; 3 nothing was found, but not all brokers answered.

    \b
    Example:
        fencepost doctor --bootstrap localhost:9092
        fencepost doctor --json || page-on-call
    """
    from fencepost.cli.output import write
    from fencepost.cli.progress import patient_bar
    from fencepost.cli.txn.showing import require_answers
    from fencepost.counting import counted
    from fencepost.diagnose.collect.doctor import collect_doctor
    from fencepost.diagnose.doctor.report import diagnose_doctor

    with cluster.connect() as client, patient_bar("reading __transaction_state") as progress:
        document = cluster.pasteable(diagnose_doctor(collect_doctor(client, progress, max_age_ms), max_age_ms))
    write(document, _report, as_json)
    found = [
        counted(count, what)
        for count, what in ((document.problem_count, "problem"), (document.risk_count, "risk"))
        if count
    ]
    if found:
        first = "run its command" if document.findings[0].command is not None else "it says what to do"
        raise Failure(f"{' and '.join(found)} found", f"the first is the most urgent: {first}")
    require_answers(document.problems)
    say(f"nothing is wrong: {_looked_at(document)}")


def _looked_at(document: DoctorReport) -> str:
    from fencepost.counting import counted

    return ", ".join(
        (
            counted(document.broker_count, "broker"),
            counted(document.partition_count, "partition"),
            f"{counted(document.transactional_id_count, 'transactional id')} ({document.open_count} open)",
            counted(document.group_count, "group"),
        )
    )


def _report(document: DoctorReport) -> Iterator[Block]:
    from fencepost.cli.output import Fields, Paragraph

    for finding in document.findings:
        lines = [finding.summary, finding.detail, *([f"  {finding.command}"] if finding.command is not None else [])]
        # One width, so that the findings stand below each other.
        yield Fields([(f"{finding.severity.name:<11}", "\n".join(lines))])
    for problem in document.problems:
        # The warnings on stderr have the causes.
        yield Fields([(f"{'NOT KNOWN':<11}", problem.partition(": ")[0])])
    if not document.findings and not document.problems:
        yield Paragraph("no findings")
