"""`fencepost salvage`: lists the side files of recovery, shows their whole batches, writes them to a topic again."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from fencepost.cli.groups import HelpfulGroup
from fencepost.cli.options import ClusterOptions, as_json_option, cluster_options
from fencepost.cli.streams import Failure, WrongUse, say

if TYPE_CHECKING:
    from fencepost.cli.output import Block
    from fencepost.protocol.records import Record
    from fencepost.server.storage.salvage import FolderCheck, Salvaged, SalvagedBatch


_HINT = "`fencepost salvage list --data DIR` lists the side files of a data folder"


@dataclass(frozen=True, slots=True)
class FileReport:
    """A side file: what its note says, and the records of the whole batches in it, by the outcome of each."""

    file: str
    log: str
    kind: str | None
    when: str | None
    reason: str | None
    expected_offset: int | None
    bytes: int
    batches: int
    first_offset: int | None
    last_offset: int | None
    plain: int
    committed: int
    aborted: int
    unknown: int


@dataclass(frozen=True, slots=True)
class FolderReport:
    files: tuple[FileReport, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchReport:
    file: str
    position: int
    bytes: int
    first_offset: int
    last_offset: int
    records: int
    producer_id: int
    producer_epoch: int
    outcome: str


@dataclass(frozen=True, slots=True)
class ContentReport:
    files: tuple[FileReport, ...]
    batches: tuple[BatchReport, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RestoreReport:
    topic: str
    partition: int
    records: int
    aborted_left_out: int
    unknown_left_out: int
    problems: tuple[str, ...]


@click.group(cls=HelpfulGroup)
def salvage() -> None:
    """Show and restore records that recovery cut off a log; check a copy of the data

    A start that finds a damaged batch cuts the log before it, and keeps the rest in side files next to the log. These
    commands read the files, of a stopped or a running broker, and change none of them.

    \b
    Example:
        fencepost salvage list --data ./brew-data
        fencepost salvage show ./brew-data/orders-0/00000000000000000000.log.cut-1
    """


@salvage.command()
@click.option("--data", metavar="DIR", required=True, help="The data folder of a broker, or a copy of one.")
@as_json_option
def check(data: str, as_json: bool) -> None:
    """Read a data folder or a copy, and look for missing or damaged data

    Compares the folder with its own records, as a start does. Checks the checksum of every batch; a start checks only
    a part of them. Changes nothing. The exit code is 1 if data is missing or damaged. In the folder of a running
    broker, a batch that is being written may look damaged.

    \b
    Example:
        fencepost salvage check --data ./brew-data-copy
    """
    from fencepost.cli.output import write
    from fencepost.counting import counted
    from fencepost.server.startup import explain
    from fencepost.server.storage.salvage import check_folder

    try:
        with _readable(data):
            document = check_folder(data)
    except Failure:
        raise
    except Exception as error:
        reason = explain(error, data)
        if reason is None:
            raise
        raise Failure(reason) from None
    write(document, _checked, as_json)
    if not document.is_whole:
        raise Failure(
            f"{data}: {counted(len(document.missing), 'incomplete log')}, "
            f"{counted(len(document.damaged), 'damaged file')}",
            "use another copy; `fencepost salvage show FILE` shows the whole batches behind the damage",
        )


files_argument = click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())


@salvage.command("list")
@click.option("--data", metavar="DIR", required=True, help="The data folder of a broker.")
@as_json_option
def list_(data: str, as_json: bool) -> None:
    """List the side files of a data folder

    Shows for each file the records of the whole batches in it, by outcome: in no transaction, committed, aborted, or
    unknown because no marker for it is in the same file.

    \b
    Example:
        fencepost salvage list --data ./brew-data
        fencepost salvage list --data ./brew-data --json
    """
    from fencepost.cli.output import write
    from fencepost.server.storage.salvage import salvage as find
    from fencepost.server.storage.salvage import side_files_in

    with _readable(data):
        found = {path: find([path]) for path in side_files_in(data)}
        files = tuple(_report(path, salvaged.batches) for path, salvaged in found.items())
    document = FolderReport(files, tuple(problem for salvaged in found.values() for problem in salvaged.problems))
    write(document, _list, as_json)
    if not document.files:
        say(f"nothing was cut off the logs in {data}")


@salvage.command()
@files_argument
@as_json_option
def show(files: tuple[str, ...], as_json: bool) -> None:
    """Show the whole batches in side files

    Any file of record batches will do, also a .log file in which a reader found damage. Give all files of one cut,
    in the order of their offsets: a marker in the second tells the outcome of a transaction in the first.

    \b
    Example:
        fencepost salvage show ./brew-data/orders-0/00000000000000000000.log.cut-1
        fencepost salvage show ./brew-data/orders-0/*.cut-1 --json
    """
    from fencepost.cli.output import write
    from fencepost.server.storage.salvage import with_outcomes

    found = _salvaged(files)
    with _readable(files[0]):
        alone = {path: with_outcomes([batch for batch in found.batches if batch.path == path]) for path in files}
        reports = tuple(_report(path, batches) for path, batches in alone.items())
    document = ContentReport(reports, tuple(_batch(batch) for batch in found.batches), tuple(found.problems))
    write(document, _show, as_json)


@salvage.command()
@files_argument
def export(files: tuple[str, ...]) -> None:
    """Print the records in side files, one JSON object per line

    All records of whole batches are printed, each with its outcome; records of aborted transactions too. Keys, values
    and header values that are not UTF-8 text are objects with one field, `base64`.

    \b
    Example:
        fencepost salvage export ./brew-data/orders-0/00000000000000000000.log.cut-1 > records.jsonl
    """
    found = _salvaged(files)
    for problem in found.problems:
        say(f"warning: {problem}")
    for batch in found.batches:
        if batch.record_count:
            for record in _records(batch):
                fields = {
                    "offset": record.offset,
                    "timestamp": record.timestamp,
                    "key": _text(record.key),
                    "value": _text(record.value),
                    "headers": [[name, _text(value)] for name, value in record.headers],
                    "outcome": batch.outcome.name.lower(),
                    "producer_id": batch.header.producer_id,
                    "producer_epoch": batch.header.producer_epoch,
                }
                print(json.dumps(fields))


@salvage.command()
@files_argument
@click.option("--topic", required=True, help="The topic to write to. It must exist.")
@click.option("--partition", type=int, help="The partition to write to. Default: that of the log of the files.")
@click.option(
    "--unknown",
    "includes_unknown",
    is_flag=True,
    help="Also restore records of transactions whose outcome is unknown: they become committed.",
)
@cluster_options
@as_json_option
def restore(
    files: tuple[str, ...],
    topic: str,
    partition: int | None,
    includes_unknown: bool,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Write the records in side files to a topic

    The records get new offsets at the end of the partition, and keep keys, values, headers and timestamps. They are
    written in one transaction: all of them or, if the command fails, none. A second call writes them a second time.

    Records of aborted transactions are left out. Records of transactions with an unknown outcome are left out too,
    unless --unknown is given: use it if the application meant to commit them.

    \b
    Example:
        fencepost salvage restore ./brew-data/orders-0/*.cut-1 --topic orders --bootstrap localhost:9092
        fencepost salvage restore lost.log.cut-1 --topic orders-restored --partition 0 --unknown
    """
    from fencepost.cli.output import write
    from fencepost.cli.restoring import INTERNAL_TOPICS, write_batches
    from fencepost.server.storage.salvage import choose

    if topic in INTERNAL_TOPICS:
        raise WrongUse(f"{topic} belongs to the broker", "its records cannot be restored; `export` prints them")
    if partition is None:
        partition = _partition_of(files[0])
    found = _salvaged(files)
    chosen, aborted, unknown = choice = choose(found.batches, includes_unknown)
    if not chosen:
        raise Failure(
            f"there is no record to restore: {aborted} of aborted transactions, {unknown} of unknown outcome",
            "--unknown restores those of unknown outcome" if unknown else "`fencepost salvage show` shows the files",
        )
    with cluster.connect() as client:
        write_batches(client, topic, partition, ((batch.header, _records(batch)) for batch in chosen))
    document = RestoreReport(topic, partition, choice.record_count, aborted, unknown, tuple(found.problems))
    write(document, _restored, as_json)


# --- reading --------------------------------------------------------------------------------------------------


@contextmanager
def _readable(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problem = f"cannot read {error.filename or path}: {error.strerror}"
        raise Failure(problem, _HINT) from None


def _salvaged(paths: tuple[str, ...]) -> Salvaged:
    from fencepost.server.storage.cuts import read_note
    from fencepost.server.storage.salvage import salvage as find

    with _readable(paths[0]):
        found = find(paths)
        with_batches = {batch.path for batch in found.batches}
        for path in () if found.problems else paths:
            # A side file may have no whole batch, and a log no batch at all.
            if path not in with_batches and os.stat(path).st_size and read_note(path) is None:
                raise Failure(f"there is no whole record batch in {path}", _HINT)
    return found


def _records(batch: SalvagedBatch) -> list[Record]:
    from fencepost.protocol.batch import Corrupt
    from fencepost.server.storage.salvage import records_of

    try:
        return records_of(batch)
    except Corrupt as error:
        problem = f"the records at position {batch.position} of {batch.path} cannot be read: {error}"
        raise Failure(problem, "its checksum is right, so its producer sent it like this") from None


def _partition_of(path: str) -> int:
    log = os.path.basename(os.path.dirname(os.path.abspath(path)))
    _, dash, index = log.rpartition("-")
    if not dash or not index.isdecimal():
        raise WrongUse(f"{path} is not in the folder of a log", "name the partition to write to with --partition")
    return int(index)


def _report(path: str, batches: list[SalvagedBatch]) -> FileReport:
    from fencepost.server.storage.cuts import read_note
    from fencepost.server.storage.salvage import Outcome

    note = read_note(path)
    counts = dict.fromkeys(Outcome, 0)
    for batch in batches:
        counts[batch.outcome] += batch.record_count
    return FileReport(
        path,
        note.log if note is not None else os.path.basename(os.path.dirname(os.path.abspath(path))),
        note.kind if note is not None else None,
        note.when if note is not None else None,
        note.reason if note is not None else None,
        note.expected_offset if note is not None else None,
        os.stat(path).st_size,
        len(batches),
        batches[0].header.base_offset if batches else None,
        batches[-1].header.last_offset if batches else None,
        counts[Outcome.PLAIN],
        counts[Outcome.COMMITTED],
        counts[Outcome.ABORTED],
        counts[Outcome.UNKNOWN],
    )


def _batch(batch: SalvagedBatch) -> BatchReport:
    header = batch.header
    outcome = batch.outcome.name.lower()
    if batch.commit is not None:
        outcome = "COMMIT marker" if batch.commit else "ABORT marker"
    return BatchReport(
        batch.path,
        batch.position,
        header.size_bytes,
        header.base_offset,
        header.last_offset,
        batch.record_count,
        header.producer_id,
        header.producer_epoch,
        outcome,
    )


def _text(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


# --- showing --------------------------------------------------------------------------------------------------


def _list(document: FolderReport) -> Iterator[Block]:
    from fencepost.cli.output import Fields

    for file in document.files:
        yield Fields(_fields(file))


def _fields(file: FileReport) -> list[tuple[str, object]]:
    offsets = None if file.first_offset is None else f"{file.first_offset} to {file.last_offset}"
    counts = {
        "in no transaction": file.plain,
        "committed": file.committed,
        "aborted": file.aborted,
        "of unknown outcome": file.unknown,
    }
    records = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return [
        ("file", file.file),
        ("cut off", file.when),
        ("reason", file.reason),
        ("expected offset", file.expected_offset),
        ("bytes", file.bytes),
        ("whole batches", file.batches),
        ("offsets", offsets),
        ("records", records or None),
    ]


def _checked(document: FolderCheck) -> Iterator[Block]:
    from fencepost.cli.output import Fields, Paragraph

    yield Fields(
        [
            ("logs", document.logs),
            (".log files", document.files),
            ("whole batches", document.batches),
            ("bytes", document.bytes),
        ]
    )
    for line in document.missing:
        yield Paragraph(line)
    for damage in document.damaged:
        behind = f"{damage.behind_bytes} bytes from there on"
        yield Paragraph(f"{damage.file}: position {damage.position}: {damage.reason}; {behind}")


def _show(document: ContentReport) -> Iterator[Block]:
    from fencepost.cli.output import Fields, Table

    for file in document.files:
        yield Fields(_fields(file))
    yield Table(
        ("POSITION", "OFFSETS", "RECORDS", "PRODUCER", "EPOCH", "OUTCOME"),
        [
            (b.position, f"{b.first_offset}-{b.last_offset}", b.records, b.producer_id, b.producer_epoch, b.outcome)
            for b in document.batches
        ],
    )


def _restored(document: RestoreReport) -> Iterator[Block]:
    from fencepost.cli.output import Paragraph
    from fencepost.counting import counted

    were = "was" if document.records == 1 else "were"
    written = counted(document.records, "record")
    yield Paragraph(f"{written} {were} written to {document.topic}-{document.partition}.")
    if document.aborted_left_out or document.unknown_left_out:
        yield Paragraph(
            f"Left out: {counted(document.aborted_left_out, 'record')} of aborted transactions, "
            f"{document.unknown_left_out} of unknown outcome."
        )
