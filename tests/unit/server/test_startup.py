"""Settings as users write them: a properties file, `name=value` pairs, and the messages when they are wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fencepost import __version__
from fencepost.broker.config import BadSetting
from fencepost.broker.metadata import (
    DocumentDamaged,
    DocumentTooNew,
    Metadata,
    TopicMetadata,
    encode_metadata,
    logs_in,
)
from fencepost.machines.log.interface import StorageFailed
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.transaction_version import TV2
from fencepost.server.startup import explain, load_config, read_properties
from fencepost.server.storage import DataFolderUnusable
from tests.folder_broker import FolderBroker


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", [(1, "a", "b")]),
        ("a = b", [(1, "a", "b")]),
        ("a:b", [(1, "a", "b")]),
        ("a b", [(1, "a", "b")]),
        ("  a\t=\tb", [(1, "a", "b")]),
        ("a", [(1, "a", "")]),
        ("a=", [(1, "a", "")]),
        ("a=b=c:d e", [(1, "a", "b=c:d e")]),
        ("# no\n! no\n\n   \na=b", [(5, "a", "b")]),
        ("a=b,\\\n    c\nd=e", [(1, "a", "b,c"), (3, "d", "e")]),
        ("a=b\\\\\nc=d", [(1, "a", "b\\"), (2, "c", "d")]),
        ("a\\=b\\:c=d", [(1, "a=b:c", "d")]),
        ("a=\\u00e9\\t\\q", [(1, "a", "é\tq")]),
        ("a=b\\", [(1, "a", "b")]),
        ("a=b\r\nc=d\r\n", [(1, "a", "b"), (2, "c", "d")]),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: list[tuple[int, str, str]]) -> None:
    assert list(read_properties(text)) == expected


def test_a_pair_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("transaction.max.timeout.ms=1000\nnum.partitions=3\n")
    config = load_config(str(file), ["transaction.max.timeout.ms=2000"])
    assert (config["transaction.max.timeout.ms"], config["num.partitions"]) == (2000, 3)


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("transaction.max.timeout=1", "hint: did you mean transaction.max.timeout.ms?"),
        ("num.partitions=many", "num.partitions=many is not a whole number"),
        ("num.partitions=0", "num.partitions=0 is below its minimum 1"),
        ("num.partitions", "hint: write name=value"),
        ("=1", "hint: write name=value"),
    ],
)
def test_a_wrong_pair_is_refused(pair: str, said: str) -> None:
    with pytest.raises(BadSetting) as refused:
        load_config(None, [pair])
    assert said in str(refused.value)


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# ours\nnum.partitons=3\n")
    with pytest.raises(BadSetting) as refused:
        load_config(str(file), [])
    assert str(refused.value) == (f"{file} line 2: unknown setting num.partitons\n\nhint: did you mean num.partitions?")


@pytest.mark.parametrize("content", [None, b"a=\xff\xfe"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "server.properties"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadSetting, match=r"cannot read the settings in .*server\.properties"):
        load_config(str(file), [])


def test_a_file_in_json_is_refused_with_the_right_format(tmp_path: Path) -> None:
    file = tmp_path / "broker.json"
    file.write_text('{"transaction.max.timeout.ms": 60000}')
    with pytest.raises(BadSetting, match=r"(?s)broker\.json look like JSON.*hint: write one name=value per line"):
        load_config(str(file), [])


def test_a_folder_of_a_later_version_is_refused_with_both_versions() -> None:
    document = json.dumps({"version": 2, "written_by": "9.9.9"}).encode()
    with pytest.raises(DocumentTooNew) as refused:
        list(logs_in(document))
    said = explain(refused.value, "./data")
    assert said is not None
    assert "has format 2 and was last used by Fencepost 9.9.9" in said
    assert f"this is Fencepost {__version__}, which knows formats up to 1" in said
    assert "\n\nhint: " in said


def test_the_document_says_which_version_wrote_it() -> None:
    document = json.loads(encode_metadata(Metadata("cluster", TV2)))
    assert (document["version"], document["written_by"]) == (1, __version__)


DOCUMENT = encode_metadata(Metadata("cluster", TV2, topics={"orders": TopicMetadata("orders", bytes(16), 3, {})}))
SPOILT_DOCUMENTS = {
    "not UTF-8": DOCUMENT.replace(b"orders", b"order\xff"),
    "cut": DOCUMENT[:-20],
    "empty": b"",
    "a list": b"[]",
    "a text": b"hello",
    "a field is gone": DOCUMENT.replace(b'"next_producer_id"', b'"next_producer_ie"'),
    "a field of another kind": DOCUMENT.replace(b'"topics": {', b'"topics": 7, "x": {'),
    "a topic id that is none": DOCUMENT.replace(b'"id": "0', b'"id": "x'),
    "a list of numbers": DOCUMENT.replace(b'"acls": []', b'"acls": [7]'),
    "a feature that is none": DOCUMENT.replace(b'"transaction_version": 2', b'"transaction_version": 9'),
}


@pytest.mark.parametrize("spoilt", SPOILT_DOCUMENTS)
def test_a_document_of_another_form_is_refused_by_its_name(spoilt: str, tmp_path: Path) -> None:
    FolderBroker(tmp_path).stop()
    path = tmp_path / "fencepost.metadata"
    path.write_bytes(SPOILT_DOCUMENTS[spoilt])
    with pytest.raises(DocumentDamaged) as refused:
        FolderBroker(tmp_path)
    said = explain(refused.value, str(tmp_path))
    assert said is not None
    assert said.startswith(f"the metadata in {tmp_path} cannot be read: {path.name}: ")
    assert "\n\nhint: " in said


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"version=1\n", b"version=1\ncluster.\xffd=x\n", bytes(50)])
def test_meta_properties_of_another_form_are_refused_with_what_they_say(content: bytes, tmp_path: Path) -> None:
    FolderBroker(tmp_path).stop()
    path = tmp_path / "meta.properties"
    path.write_bytes(content)
    with pytest.raises(DataFolderUnusable, match=f"{path} has version .*, expected 1, and cluster.id None") as refused:
        FolderBroker(tmp_path)
    assert "restore the file from a copy" in (explain(refused.value, str(tmp_path)) or "")


@pytest.mark.parametrize(
    "name",
    [
        "fencepost.metadata",
        "meta.properties",
        ".kafka_cleanshutdown",
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "boot-id",
        "logs-of-this-boot",
        "orders-0/partition.metadata",
        "orders-0/leader-epoch-checkpoint",
        "orders-0/00000000000000000000.log",
        "orders-0/00000000000000000000.txnindex",
        "orders-0/00000000000000000001.snapshot",
    ],
)
def test_a_folder_in_the_place_of_a_file_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    broker = FolderBroker(tmp_path)
    broker.cluster.create_topic("orders", 1, {}, broker.now_ms)
    partition = broker.cluster.partition("orders", 0)
    assert partition is not None
    partition.append_internal(encode_batch([(b"key", b"value")], broker.now_ms, 7, 0, 0))
    broker.stop()
    path = tmp_path / name
    path.unlink(missing_ok=True)
    path.mkdir()
    with pytest.raises((OSError, StorageFailed), match="Is a directory") as refused:
        FolderBroker(tmp_path)
    said = explain(refused.value, str(tmp_path)) or repr(refused.value)
    assert said.startswith(f"{path} is a folder, and the broker needs a file with this name\n\nhint: "), said
