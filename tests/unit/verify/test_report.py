"""The report on a history: the document, the HTML page, and the command that writes them."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from fencepost.cli import main
from fencepost.verify.history import Event, Fault, Header, encode, encode_header
from fencepost.verify.report.document import SHOWN, SHOWN_ALLOWED, judge
from fencepost.verify.report.page import draw_page, draw_swim_lanes, lanes_of
from tests.unit.verify.checkers.stories import TOPICS, told

HEADER = Header(7, {"cluster": "<b>localhost</b>"}, TOPICS)
LOST = "w sends a to tea-0\nw acked a tea-0@0\nrest\nr reads tea-0:"
GOOD = "w begin 1\nw sends a to tea-0\nw commits 1\nw ended 1 committed\nrest\nr reads tea-0: 0=a"


def history(path: Path, story: str) -> str:
    path.write_text(encode_header(HEADER) + "".join(map(encode, told(story))))
    return str(path)


def many_lost(count: int) -> str:
    sends = "\n".join(f"w sends a{n} to tea-0\nw acked a{n} tea-0@{n}" for n in range(count))
    return f"{sends}\nrest\nr reads tea-0:"


def test_a_history_without_an_anomaly_gives_exit_code_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "check", history(tmp_path / "history", GOOD)]) == 0
    assert "no anomaly: 3 clients, transactions: 1 committed" in capsys.readouterr().err


def test_an_anomaly_gives_exit_code_1_and_its_lines_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "check", history(tmp_path / "history", LOST)]) == 1
    shown = capsys.readouterr()
    assert "anomalies were found: lost write (1)" in shown.err
    assert "   2  0.000  w       send a to tea-0" in shown.out
    assert "a was acknowledged at tea-0 offset 0, and is missing at rest" in shown.out


def test_the_json_document_has_the_same_anomalies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "check", history(tmp_path / "history", LOST), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["anomalies"] == 1
    [kind] = document["kinds"]
    assert (kind["kind"], kind["count"]) == ("lost-write", 1)
    assert [event["line"] for event in kind["shown"][0]["events"]] == [2, 3, 4]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "is no history: line 1: the first line is no header"),
        ("tea\n", "is no history: line 1: no JSON"),
        (encode_header(HEADER) + "tea\n", "is no history: line 2: no JSON"),
        (
            encode_header(HEADER) + '{"event":"begin","at":"now","by":"w","txn":1}\n',
            "is no history: line 2: the time is 'now'",
        ),
        (
            encode_header(HEADER) + '{"event":"ended","at":1,"by":"w","txn":1,"outcome":"perhaps"}\n',
            "is no history: line 2: a field has a value that it cannot have: 'perhaps'",
        ),
    ],
)
def test_a_file_that_is_no_history_is_an_error_with_its_line(
    content: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "history").write_text(content)
    assert main(["verify", "check", str(tmp_path / "history")]) == 1
    shown = capsys.readouterr()
    assert complaint in shown.err
    assert "hint: " in shown.err
    assert shown.out == ""


def test_a_file_that_cannot_be_read_or_written_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "check", str(tmp_path / "nosuch")]) == 1
    assert "cannot read" in capsys.readouterr().err
    good = history(tmp_path / "history", GOOD)
    assert main(["verify", "check", good, "--html", str(tmp_path / "no/such.html")]) == 1
    assert "cannot write" in capsys.readouterr().err


def test_a_report_shows_some_anomalies_of_each_kind_and_counts_all() -> None:
    report = judge(HEADER, told(many_lost(SHOWN + 3)))
    [kind] = report.kinds
    assert (kind.count, len(kind.shown)) == (SHOWN + 3, SHOWN)
    assert "and 3 more" in draw_page(report)


def test_an_allowed_kind_is_counted_and_is_no_anomaly() -> None:
    story = "w begin 1\nw sends a to tea-0\nw sends b to tea-1\nv begin 1\nv sends c to tea-0\nv sends d to tea-1\n"
    story += "w commits 1\nv commits 1\nr reads tea-0: 0=a 1=c\nr reads tea-1: 0=d 1=b"
    report = judge(HEADER, told(story))
    assert report.anomalies == 0
    assert [(kind.kind, len(kind.shown)) for kind in report.kinds] == [("G0", SHOWN_ALLOWED)]


def test_a_history_without_a_rest_says_what_it_cannot_show() -> None:
    [first] = judge(HEADER, told("w begin 1")).not_judged
    assert first.startswith("lost writes, torn transactions")
    assert "not read at rest: tea-0" in judge(HEADER, told("w sends a to tea-0\nw acked a tea-0@0\nrest")).not_judged[0]


# --- the page ---------------------------------------------------------------------------------------------------

EVIL = LOST.replace(" a ", " <script>alert(1)</script>&\"' ")


def test_the_page_escapes_everything_and_loads_nothing() -> None:
    page = draw_page(judge(HEADER, told(EVIL)))
    assert "<script" not in page
    assert "<b>" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert all(link == "#" for link in re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?(.)", page))
    assert "http" not in page


def test_a_timeline_has_a_lane_for_each_client_and_partition_and_a_band_for_each_fault() -> None:
    events: list[Event] = [*told(LOST), Fault(1, "nemesis", "delay EndTxn", 2.0)]
    anomaly = judge(HEADER, events).kinds[0].shown[0]
    assert lanes_of(anomaly.events) == ["w", "main", "tea-0"]
    drawing = ET.fromstring(draw_swim_lanes(anomaly))
    assert len(drawing.findall(".//circle")) == len(anomaly.events)
    assert len(drawing.findall(".//line[@class='lane']")) == 3
    [band] = drawing.findall(".//rect[@class='fault']")
    assert band.findtext("title") == "delay EndTxn"


def test_a_page_can_be_written_beside_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"
    assert main(["verify", "check", history(tmp_path / "history", LOST), "--html", str(page)]) == 1
    assert "--html" not in capsys.readouterr().err
    assert page.read_text().startswith("<!doctype html>")
    assert "<svg" in page.read_text()
