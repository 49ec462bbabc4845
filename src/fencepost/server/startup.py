"""The start of a broker: its settings, the data folder of the last process, its topics, and why it cannot start.

Settings come from a file in Java's properties format and from `name=value` pairs, which take precedence.
`--topic NAME:PARTITIONS` names topics that exist as soon as clients can connect.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fencepost.broker.cluster import Cluster
from fencepost.broker.config import BadSetting as BadSetting  # So that commands can catch it.
from fencepost.broker.config import Config, parse
from fencepost.broker.controller import DataFolderMismatch
from fencepost.broker.coordinator.txns import StateLogDamaged
from fencepost.broker.listeners import PLAINTEXT, format_address, format_listener
from fencepost.broker.metadata import DocumentDamaged, DocumentTooNew
from fencepost.broker.topics import TopicRefused
from fencepost.counting import counted
from fencepost.machines.log.interface import CorruptLog, StorageFailed
from fencepost.server.addresses import CannotListen
from fencepost.server.listeners import Listener

if TYPE_CHECKING:
    from fencepost.server.storage import DataFolder

DISK_REFUSES = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}

_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_SEPARATOR = re.compile(r"(?:[^\\=:\s]|\\.)*")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line number, key, value) of a document in Java's properties format."""
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        logical = line.lstrip(" \t\f")
        if not logical or logical[0] in "#!":
            continue
        while _ends_in_odd_backslashes(logical):
            _, following = next(lines, (0, ""))
            logical = logical[:-1] + following.lstrip(" \t\f")
        match = _SEPARATOR.match(logical)
        assert match is not None
        rest = logical[match.end() :].lstrip(" \t\f")
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(" \t\f")
        yield number, _unescape(match.group()), _unescape(rest)


def _ends_in_odd_backslashes(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda m: chr(int(m[1], 16)) if m[1] else _CONTROL.get(m[2], m[2]), text)


def load_config(file: str | None, pairs: Iterable[str], advertised: tuple[str, int] | None = None) -> Config:
    """The settings in `file`, then those in `pairs`, then the host and port that clients are given.

    Raises BadSetting, which says where the wrong one is.
    """
    found: dict[str, str] = {}
    given = [*_settings_of_file(file), *_settings_of_pairs(pairs)]
    if advertised is not None:
        given.append(("--advertise", "advertised.listeners", format_listener(*advertised)))
    for origin, name, value in given:
        try:
            parse({name: value})
        except BadSetting as error:
            raise BadSetting(f"{origin}: {error}") from None
        found[name] = value
    return parse(found)


def _settings_of_file(file: str | None) -> Iterator[tuple[str, str, str]]:
    if file is None:
        return
    try:
        with open(file, encoding="utf-8") as opened:
            text = opened.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadSetting(
            f"cannot read the settings in {file}: {reason}\n\nhint: --config names a file with one name=value per line"
        ) from None
    if text.lstrip().startswith(("{", "[", "<")):
        raise BadSetting(
            f"the settings in {file} look like JSON, XML or INI\n\n"
            "hint: write one name=value per line, for example transaction.max.timeout.ms=60000"
        )
    for line, name, value in read_properties(text):
        yield f"{file} line {line}", name, value.strip()


def _settings_of_pairs(pairs: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise BadSetting(
                f"--set {pair} is not a setting\n\n"
                "hint: write name=value, for example --set transaction.max.timeout.ms=60000"
            )
        yield "--set", name.strip(), value.strip()


def ready_line(listeners: Sequence[Listener]) -> str:
    """The line on stdout that a parent process waits for: where the brokers listen, whatever clients are given.

    A broker with other listeners than PLAINTEXT, or with more, writes the names of its listeners too.
    """
    is_usual = [listener.endpoint.name for listener in listeners] == [PLAINTEXT]
    return "ready " + ",".join(
        format_address(*address[1:]) if is_usual else format_listener(*address[1:], listener.endpoint.name)
        for listener in listeners
        for address in listener.listens_on
    )


def explain(error: Exception, data: str | None = None) -> str | None:
    """The message for the user who started the broker; None if the user cannot fix the cause."""
    from fencepost.server.storage import DataFolderUnusable
    from fencepost.server.storage.document import METADATA_NAME
    from fencepost.server.storage.missing import SETTING

    if isinstance(error, CorruptLog):
        return (
            f"a start cannot do without a damaged batch: {error}\n\n"
            "hint: check the disk, and restore the folder from a copy, or accept the loss with "
            f"--set {SETTING}=accept, which keeps the records behind the damaged batch for `fencepost salvage`"
        )
    explained = (
        BadSetting,
        CannotListen,
        DataFolderMismatch,
        DataFolderUnusable,
        DocumentTooNew,
        StateLogDamaged,
        TopicDiffers,
    )
    if isinstance(error, explained):
        return str(error)
    cause = error.__cause__ if isinstance(error, StorageFailed) else error
    if isinstance(cause, IsADirectoryError | NotADirectoryError):
        path = cause.filename2 or cause.filename
        found, wanted = ("folder", "file") if isinstance(cause, IsADirectoryError) else ("file", "folder")
        hint = f"move it elsewhere and restore the {wanted} from a copy of the data folder"
        return f"{path} is a {found}, and the broker needs a {wanted} with this name\n\nhint: {hint}"
    if isinstance(error, StorageFailed):
        hint = "make room, or choose another folder with --data"
        return f"the data folder {data} cannot be written: {error}\n\nhint: {hint}"
    if isinstance(error, DocumentDamaged):
        hint = "it was changed from outside; restore the folder from a copy, or give another one with --data"
        return f"the metadata in {data} cannot be read: {METADATA_NAME}: {error}\n\nhint: {hint}"
    if isinstance(error, OSError) and error.errno in DISK_REFUSES:
        hint = "make room, or choose a folder that this user may write to with --data"
        return f"the data folder {data} cannot be written: {error.strerror}\n\nhint: {hint}"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        # Two brokers can bind the same port while neither listens; then the second `listen` fails.
        hint = "another program took the port; choose another one with --listen HOST:PORT"
        return f"cannot listen: {error.strerror}\n\nhint: {hint}"
    return None


class TopicDiffers(Exception):
    """A topic cannot be created, or exists with another number of partitions."""


def ensure_topics(cluster: Cluster, wanted: Mapping[str, int | None], now_ms: int) -> Iterator[str]:
    """Create the topics that do not exist; yield a line for each of them. Raises TopicDiffers."""
    for name, partition_count in wanted.items():
        topic = cluster.topics.get(name)
        if topic is None:
            count = cluster.config["num.partitions"] if partition_count is None else partition_count
            try:
                cluster.create_topic(name, count, {}, now_ms)
            except TopicRefused as e:
                raise TopicDiffers(
                    f"--topic {name}:{count}: the topic cannot be created: {e}\n\n"
                    "hint: choose another name, or another number of partitions"
                ) from None
            yield f"created the topic {name} with {counted(count, 'partition')}"
        elif partition_count not in (None, topic.partition_count):
            raise TopicDiffers(
                f"--topic {name}:{partition_count}: the topic exists with {topic.partition_count} partitions\n\n"
                f"hint: start with --topic {name}:{topic.partition_count}; records stay on their partitions, so the "
                "number is not changed at a start"
            )


def recover(storage: DataFolder, cluster: Cluster, now_ms: int) -> None:
    """Start the cluster on the data folder that the last process left."""
    from fencepost.server.storage import DataFolderUnusable

    if storage.load_metadata() is None and storage.strays():
        raise DataFolderUnusable(
            f"{storage.path} has logs ({storage.strays()[0]} ...), but not the document that says what they are",
            "restore the file fencepost.metadata, or choose a new folder",
        )
    cluster.start(now_ms)
    storage.note_cluster(cluster.cluster_id, cluster.brokers[0].node_id)
    # The logs that were not opened belong to topics that were being deleted when the last process died.
    storage.delete_strays()
