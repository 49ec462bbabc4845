"""The text of an input, and how it is found in an output."""

from __future__ import annotations

import json

import pytest

from fencepost.verify.pipeline.inputs import Matching, input_id, input_value, template_of

ID = input_id("3fa9", 123)


def test_an_input_is_its_id_or_json_with_it_or_what_a_template_says() -> None:
    assert ID == "fp-3fa9-000123"
    assert input_value(template_of("text"), ID) == ID
    assert json.loads(input_value(template_of("json"), ID)) == {"id": ID}
    assert json.loads(input_value('{"order": {"no": {number}, "key": "{id}"}}', ID)) == {
        "order": {"no": 123, "key": ID}
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, ID), (ID, None), (ID, f"paid {ID}, audited {ID}"), (None, json.dumps({"order": {"id": ID}}))],
)
def test_an_output_names_its_input_anywhere_in_its_key_or_value(key: str | None, value: str | None) -> None:
    def encoded(text: str | None) -> bytes | None:
        return None if text is None else text.encode()

    assert Matching("3fa9").ids(encoded(key), encoded(value)) == [ID]


def test_an_output_may_be_made_of_several_inputs() -> None:
    assert Matching("3fa9").ids(None, b"fp-3fa9-000001+fp-3fa9-000002") == [input_id("3fa9", 1), input_id("3fa9", 2)]


def test_ids_of_an_earlier_run_are_not_taken_for_this_one() -> None:
    assert Matching("3fa9").ids(None, b"fp-aaaa-000123") == []
    assert Matching("3fa9", r"fp-\S+").ids(None, b"fp-aaaa-000123") == []


def test_a_pattern_finds_the_id_or_its_number_in_its_first_group() -> None:
    assert Matching("3fa9", r'"no": (\d+)').ids(None, b'{"no": 123, "sum": 7}') == [ID]
    assert Matching("3fa9", r"<(.*?)>").ids(None, f"<{ID}>".encode()) == [ID]
    assert Matching("3fa9", r"<(.*?)>").ids(b"\xff", b"<other>") == []
