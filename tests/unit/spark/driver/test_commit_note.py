"""Commit notes as text, and which of several is the last."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost.spark.driver.commit_note import (
    MAX_NOTE_BYTES,
    CommitNote,
    TokenNote,
    UnreadableNote,
    decode_note,
    decode_token_note,
    encode_note,
    newest,
    note_group,
    token_group,
    with_ends,
)

QUERY, OTHER, DIGEST = "085a50be-a657-4fc4-a889-73ccf4206911", "edda17f4-f356-4228-a42c-5847c4b3c4c4", "0123abcd"


def test_the_note_of_a_token_survives_its_journey_and_is_told_from_others() -> None:
    for topic, micro_batch in (("refunds", None), (None, "micro-batch 7")):
        note = TokenNote("2026-11-16", topic, 7, micro_batch)
        assert decode_token_note(encode_note(note)) == note
    for text in (
        "",
        "7",
        "{}",
        '{"fencepost":2,"token":"t","topic":null,"records":1}',
        '{"fencepost":1,"token":"t","topic":null,"records":1,"micro_batch":1}',
        encode_note(CommitNote("q", 1, "d")),
    ):
        assert decode_token_note(text) == UnreadableNote(text)


def test_two_tokens_never_have_the_same_group() -> None:
    assert token_group("refunds-1", "2026-11-16") == "fencepost-token-refunds-1:2026-11-16"
    assert token_group("a:b", "c") != token_group("a", "b:c")


def test_group_and_text_of_a_note_are_those_that_clusters_hold() -> None:
    assert note_group("refunds-1") == "fencepost-marker-refunds-1"
    assert encode_note(CommitNote("q", 7, "d", 3)) == '{"fencepost":1,"query":"q","batch":7,"digest":"d","number":3}'


def test_a_commit_note_comes_back_from_its_text_and_fits_into_offset_metadata() -> None:
    note = CommitNote(QUERY, 2**40, "f" * 64, 2**40)
    text = encode_note(note)
    assert decode_note(text) == note
    assert len(text.encode()) < 300


def test_a_note_says_when_its_micro_batch_was_planned_and_where_it_ends() -> None:
    note = CommitNote("q", 7, "d", 3, planned_ms=5, ends={("in", 10): 2, ("in", 2): 1})
    text = encode_note(note)
    assert text.endswith('"planned":5,"ends":{"in":{"2":1,"10":2}}}')
    assert decode_note(text) == note


def test_ends_that_make_a_note_too_large_are_left_out() -> None:
    note = CommitNote(QUERY, 7, DIGEST, 3, planned_ms=5)
    few, many = {("in", 0): 1}, {("in", p): 10**9 for p in range(400)}
    assert with_ends(note, few).ends == few
    assert with_ends(note, many) == note
    assert with_ends(note, {}) == note


def test_a_commit_note_that_a_broker_would_not_take_is_an_error() -> None:
    with pytest.raises(ValueError, match=str(MAX_NOTE_BYTES)):
        encode_note(CommitNote("q" * 5000, 1, DIGEST))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mine",
        "[]",
        "7",
        "{}",
        '{"fencepost":2,"query":"q","batch":1,"digest":"d","number":1}',
        '{"fencepost":1,"query":"q","batch":"1","digest":"d","number":1}',
        '{"fencepost":1,"query":"q","batch":true,"digest":"d","number":1}',
        '{"fencepost":1,"query":"q","batch":1,"number":1}',
        '{"fencepost":1,"query":"q","batch":1,"digest":"d","number":1,"planned":"1"}',
        '{"fencepost":1,"query":"q","batch":1,"digest":"d","number":1,"ends":{"in":1}}',
    ],
)
def test_text_that_is_no_commit_note_is_unreadable(text: str) -> None:
    assert decode_note(text) == UnreadableNote(text)


def test_among_several_notes_that_of_the_last_transaction_counts_whichever_query_wrote_it() -> None:
    old = CommitNote(QUERY, 9, DIGEST, number=9)
    adopted = CommitNote(OTHER, 1, DIGEST, number=11)
    assert newest([old, adopted, adopted]) == adopted
    assert newest([old, UnreadableNote("?"), adopted]) == UnreadableNote("?")
    last = CommitNote(QUERY, 1, DIGEST, 12, ends={("in", 0): 1})
    assert newest([replace(last, ends=None), last]) == last
    assert newest([]) is None
