"""`fencepost tail`: the records of a topic, each with the outcome of its transaction."""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.groups import ReaderGone
from fencepost.cli.options import UNITS_MS, ClusterOptions, Duration, cluster_options
from fencepost.cli.streams import Failure, say
from fencepost.cli.txn.partitions import parse_place

if TYPE_CHECKING:
    from fencepost.diagnose.collect.reading import Start
    from fencepost.diagnose.tail.documents import TailEvent

COLOURS = {"committed": "green", "aborted": "red", "open": "yellow", "marker": "blue", "unknown": "magenta"}
MOST_OFFSET = 2**63 - 1


class StartType(click.ParamType):  # type: ignore[type-arg]  # In older versions it is not generic.
    name = "start"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Start:
        from fencepost.diagnose.collect.look import now_ms
        from fencepost.diagnose.collect.reading import Start, StartKind

        text = str(value).strip()
        if text in ("earliest", "latest"):
            return Start(StartKind(text))
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdigit():
            number = int(digits)
            if number > MOST_OFFSET:
                self.fail(f"{text} is not an offset: at most {MOST_OFFSET}")
            return Start(StartKind.LAST if text.startswith("-") else StartKind.OFFSET, number)
        if text[-1:].isalpha() and text[:1].isdigit() and text.endswith(tuple(UNITS_MS)):
            return Start(StartKind.TIME, max(now_ms() - Duration().convert(text, param, ctx), 0))
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(
                f"{text!r} is no place to start: write earliest, latest, an offset such as 42, -10 for the last ten, "
                "a duration such as 5m, or a time such as 2026-03-01T12:00:00Z"
            )
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return Start(StartKind.TIME, max(round(moment.timestamp() * 1000), 0))


@click.command()
@click.argument("place", metavar="TOPIC[:PARTITION]")
@click.option(
    "--from",
    "start",
    type=StartType(),
    default="-10",
    show_default=True,
    metavar="START",
    help="earliest, latest, an OFFSET, -N (N offsets before the end of each partition), a duration such as 5m (since "
    "then), or a time such as 2026-03-01T12:00:00Z (UTC unless it says otherwise).",
)
@click.option("--follow", "-f", is_flag=True, help="Keep printing records as they arrive, until Ctrl-C.")
@click.option("--full", is_flag=True, help="Show long keys and values whole. JSON always has them whole.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document per line.")
@cluster_options
def tail(place: str, start: Start, follow: bool, full: bool, as_json: bool, cluster: ClusterOptions) -> None:
    """Show the records of a topic, each with the outcome of its transaction

    A record is `committed`, `aborted`, `open` (its transaction has not ended), or `plain` (written outside any
    transaction). Markers, which end transactions, are shown too. With --follow, a line reports when offsets that were
    shown as open are committed or aborted. Bytes that are no text are shown in hexadecimal digits, control characters
    are escaped. Reads with read_uncommitted and changes nothing, not even the offsets of a group.

    \b
    Example:
        fencepost tail orders --bootstrap localhost:9092
        fencepost tail orders:2 --from earliest
        fencepost tail orders --from 5m --follow
        fencepost tail orders --from earliest --json | jq 'select(.outcome == "aborted")'
    """
    from fencepost.cli.topic import unknown_topic
    from fencepost.client.admin.topics import NO_SUCH_TOPIC
    from fencepost.client.failures import BrokerError
    from fencepost.client.fetching import TopicGone
    from fencepost.diagnose.collect.reading import DamagedBatch
    from fencepost.diagnose.collect.tail import TopicTail
    from fencepost.protocol.batch import Corrupt

    topic, partition = parse_place(place)
    show = _shown(as_json, full)
    is_over = _reader_is_gone()
    with cluster.connect() as client:
        try:
            reading = TopicTail(client, topic, partition)
        except BrokerError as e:
            if e.code not in NO_SUCH_TOPIC:
                raise
            if partition is None:
                raise unknown_topic(cluster, client, topic) from None
            raise Failure(
                str(e), f"`{cluster.command('topic', 'describe', about=topic)}` shows its partitions"
            ) from None
        try:
            is_empty = True
            for event in reading.present(start):
                show(event)
                is_empty = False
            sys.stdout.flush()
            if is_empty and not follow:
                say(f"no records in {place} from there on")
            if follow:
                for event in reading.arriving(is_over):
                    show(event)
                    sys.stdout.flush()
                raise ReaderGone("the reader of the output has gone")
        except KeyboardInterrupt:
            if not follow:
                raise
        except TopicGone as e:
            raise Failure(str(e), f"`{cluster.command('topic', 'list')}` lists the topics that there are") from None
        except DamagedBatch as e:
            behind = cluster.command("tail", "--from", str(e.next_offset), about=f"{e.where.topic}:{e.where.partition}")
            raise Failure(str(e), f"`{behind}` shows what follows it") from None
        except Corrupt as e:
            raise Failure(
                f"{place} holds a record batch that cannot be read: {e}", "is it older than Kafka 0.11?"
            ) from None


def _shown(as_json: bool, full: bool) -> Callable[[TailEvent], None]:
    """Prints an event: data on stdout, remarks on stderr."""
    from fencepost.diagnose.tail.documents import SHOWN_CHARS, Remark, document_of, line_of, outcome_of
    from fencepost.diagnose.words import plain
    from fencepost.printable import printable

    coloured = sys.stdout.isatty()
    most_chars = None if full else SHOWN_CHARS

    def show(event: TailEvent) -> None:
        if isinstance(event, Remark):
            sys.stdout.flush()
            say(f"warning: {printable(event.text)}")
        elif as_json:
            print(json.dumps(plain(document_of(event))))
        elif coloured:
            word = outcome_of(event)
            print(line_of(event, most_chars, click.style(f"{word:<9}", fg=COLOURS.get(word))))
        else:
            print(line_of(event, most_chars))

    return show


def _reader_is_gone() -> Callable[[], bool]:
    """Whether the reader of our pipe has ended, as `head` does: without a record to write, nothing else would tell."""
    try:
        ended = select.poll()
        ended.register(sys.stdout.fileno(), 0)
    except (AttributeError, OSError, ValueError):
        return lambda: False  # Windows, or stdout is no file.
    return lambda: any(events & (select.POLLERR | select.POLLNVAL) for _, events in ended.poll(0))
