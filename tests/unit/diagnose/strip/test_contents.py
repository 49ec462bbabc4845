"""Bytes as text: UTF-8, indented JSON, hexadecimal digits, and a limit for each of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fencepost.diagnose.strip.strip import DEEPEST_INDENTED, MOST_CHARS, MOST_HEX_BYTES, content_of


def test_null_and_empty_are_told_apart() -> None:
    assert (content_of(None).format, content_of(b"").format) == ("null", "text")


def test_bytes_that_are_no_utf_8_are_lines_of_digits() -> None:
    content = content_of(b"\xff\xfe" + bytes(range(16)))
    assert content.format == "hex"
    assert content.text == "00000000  ff fe 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d\n00000010  0e 0f"


@pytest.mark.parametrize("byte", [b"x", b"\xff", "é".encode()])
def test_a_mebibyte_is_cut_and_says_its_size(byte: bytes) -> None:
    data = byte * ((1 << 20) // len(byte))
    content = content_of(data)
    assert (content.is_cut, content.size_bytes) == (True, 1 << 20)
    assert len(content.text) <= max(MOST_CHARS, 4 * MOST_HEX_BYTES)


def test_json_is_indented_and_otherwise_stays_as_it_was_written() -> None:
    content = content_of(b'{"a":1.10, "a":[ ],"b":[1e400,{"c":"x, [y]: \\"z\\""}],"d":{}}')
    assert content.format == "json"
    assert content.text == (
        '{\n  "a": 1.10,\n  "a": [],\n  "b": [\n    1e400,\n    {\n      "c": "x, [y]: \\"z\\""\n    }\n  ],\n'
        '  "d": {}\n}'
    )


def test_indented_json_means_the_same() -> None:
    document: dict[str, Any] = {
        "orders": [{"id": n, "tags": ["<b>", "\u202e"], "none": None, "nested": [[], [{}]]} for n in range(5)]
    }
    content = content_of(json.dumps(document).encode())
    assert (content.format, json.loads(content.text)) == ("json", document)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 10_000,
        b"[" * 10_000 + b"]" * 6_000,
        b"[" * (DEEPEST_INDENTED + 1) + b"]" * (DEEPEST_INDENTED + 1),
        b'{"a": ' + b"9" * 5000 + b"}",
        b"{not json}",
        b"12",
    ],
    ids=["open", "deep", "a level too deep", "a long number", "broken", "a number"],
)
def test_text_that_is_no_json_document_or_a_hostile_one_is_shown_as_it_is(data: bytes) -> None:
    content = content_of(data)
    assert (content.format, content.text) == ("text", data.decode())


def test_the_deepest_json_is_indented() -> None:
    assert content_of(b"[" * DEEPEST_INDENTED + b"]" * DEEPEST_INDENTED).format == "json"
