"""The cluster's document on disk: a damaged one is refused, and an older copy is never used in silence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.machines.log.interface import LogConfig
from fencepost.server.storage import DataFolder, DataFolderUnusable
from fencepost.server.storage.document import Document
from fencepost.server.storage.missing import DataMissing
from tests.unit.server.test_storage_recovery import everything, put

TOPIC_ID = bytes(range(16))
DOCUMENT, REVISION = "fencepost.metadata", "metadata-revision"


def logs_in(document: bytes) -> list[tuple[str, bytes]]:
    """As in the broker's own documents, which have more."""
    return [(name, TOPIC_ID) for name in json.loads(document)["logs"]]


def document(*logs: str) -> bytes:
    return json.dumps({"logs": logs}, indent=1).encode()


def folder(path: Path, **options: object) -> DataFolder:
    return DataFolder(str(path), **{"logs_in": logs_in, **options})  # type: ignore[arg-type]


def saved(path: Path, *logs: str) -> None:
    opened = folder(path)
    opened.save_metadata(document(*logs))
    opened.close()


def test_what_is_loaded_is_what_was_saved_and_the_file_is_json(tmp_path: Path) -> None:
    saved(tmp_path, "orders-0")
    assert json.loads(Document(str(tmp_path)).load() or b"") == {"logs": ["orders-0"]}
    kept = json.loads((tmp_path / DOCUMENT).read_text())
    assert (kept["logs"], kept["revision"], len(kept["crc32c"])) == (["orders-0"], 1, 8)


def test_a_document_of_an_earlier_version_has_no_seal_and_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / DOCUMENT).write_bytes(document("orders-0"))
    opened = folder(tmp_path)
    assert opened.load_metadata() == document("orders-0")
    opened.close()


def test_no_changed_bit_of_the_document_goes_unnoticed(tmp_path: Path) -> None:
    saved(tmp_path, "orders-0", "orders-1")
    path = tmp_path / DOCUMENT
    content = path.read_bytes()
    for position in range(len(content)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        with pytest.raises(
            DataFolderUnusable, match=r"(?s)is damaged: its checksum is |it has no revision; by .*hint: "
        ):
            folder(tmp_path, logs_in=lambda document: [])


@pytest.mark.parametrize("stop", ["close", "abandon"])
def test_an_older_copy_of_the_document_is_refused_or_its_strays_are_kept(tmp_path: Path, stop: str) -> None:
    saved(tmp_path, "orders-0")
    copy = (tmp_path / DOCUMENT).read_bytes()
    opened = folder(tmp_path)
    opened.save_metadata(document("orders-0", "newer-0"))
    for topic in ("orders", "newer"):
        put(opened.open_log(topic, 0, TOPIC_ID, LogConfig()))
    getattr(opened, stop)()
    newer = next((tmp_path / "newer-0").glob("*.log")).read_bytes()
    (tmp_path / DOCUMENT).write_bytes(copy)
    before = content(tmp_path)
    with pytest.raises(DataMissing, match="it is revision 1; by metadata-revision, revision 2 was saved"):
        folder(tmp_path)
    assert content(tmp_path) == before, "a refused start changes nothing"
    lines: list[str] = []
    opened = folder(tmp_path, missing="accept", report=lines.append)
    assert len(lines) == 1
    assert "accepted, and the files of 1 log that it does not have are kept: newer-0." in lines[0]
    assert opened.may_have_lost_appends, "producer ids begin anew, as after a power loss"
    assert everything(opened.open_log("orders", 0, TOPIC_ID, LogConfig()))
    opened.save_metadata(document("orders-0"))
    for _ in range(2):
        opened.delete_strays()
        (stray,) = tmp_path.glob("newer-0.*-stray")
        assert next(stray.glob("*.log")).read_bytes() == newer
        opened.close()
        opened = folder(tmp_path, report=lines.append)
        opened.open_log("orders", 0, TOPIC_ID, LogConfig())
    assert len(lines) == 1
    opened.close()


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda note: b"",
    "a higher number": lambda note: b"9" + note[1:],
    "text": lambda note: b"not a number",
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_damaged_note_of_the_revision_accuses_no_document(tmp_path: Path, how: str) -> None:
    saved(tmp_path, "orders-0")
    path = tmp_path / REVISION
    path.write_bytes(SPOILT[how](path.read_bytes()))
    opened = folder(tmp_path)
    opened.save_metadata(document("orders-0"))
    opened.close()
    assert path.read_bytes().startswith(b"2 ")


def test_a_document_that_is_gone_is_missed_though_it_had_no_logs(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / DOCUMENT).unlink()
    with pytest.raises(DataMissing, match="there is no such file; by metadata-revision, revision 1 was saved"):
        folder(tmp_path)


def content(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file() and file.name != ".lock"}
