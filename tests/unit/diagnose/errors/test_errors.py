"""The table of errors: complete, true to the clients, and found by any name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from fencepost.diagnose.errors.entry import Effect, ErrorEntry, Then
from fencepost.diagnose.errors.librdkafka import LIBRDKAFKA_TEXTS, LOCAL
from fencepost.diagnose.errors.table import TABLE, NotFound, OtherError, look_up
from fencepost.protocol import errors

SOURCE = Path(__file__).resolve().parents[4] / "src/fencepost"
# What a transactional producer and the consumer beside it call, and what tools call to look at them.
CLIENT_APIS = (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 22, 23, 24, 25, 26, 27, 28, 61, 65, 66)


def errors_used_in(path: Path) -> set[str]:
    """The names of all errors that a file mentions."""
    nodes = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute)]
    return {n.attr for n in nodes if isinstance(n.value, ast.Name) and n.value.id == "errors"}


def test_every_error_that_our_broker_answers_a_client_with_is_in_the_table() -> None:
    handlers = [path for key in CLIENT_APIS for path in (SOURCE / "broker/api").glob(f"k{key:02d}_*.py")]
    assert len(handlers) == len(CLIENT_APIS)
    deciders = (
        "machines/txn/decisions.py",
        "machines/partition/partition.py",
        "machines/partition/producers.py",
        "broker/coordinator/txns.py",
    )
    files = [*handlers, *(SOURCE / path for path in deciders)]
    used = set[str]().union(*map(errors_used_in, files)) & set(errors.NAMES.values())
    assert used - {entry.name for entry in TABLE.values()} == set()


def test_every_row_is_filled_in() -> None:
    for entry in TABLE.values():
        assert entry.meaning.endswith(".")
        assert entry.what_to_do.endswith((".", "?"))
        assert entry.apis or entry.code == errors.NONE
        assert len(entry.meaning) > 5


def test_a_definite_error_that_may_be_retried_is_retried_and_not_closed() -> None:
    for entry in TABLE.values():
        if entry.retriable:
            assert entry.then is Then.RETRY, entry.name
        if entry.then in (Then.CLOSE, Then.EXIT, Then.FIX):
            assert not entry.retriable, entry.name


@pytest.mark.parametrize("code", [errors.PRODUCER_FENCED, -144])
def test_nobody_is_told_to_create_a_new_producer_after_being_fenced(code: int) -> None:
    """It would fence its successor, which then does the same."""
    entry = TABLE[code]
    assert entry.then is Then.EXIT
    assert entry.what_to_do.startswith("End this process")


def test_a_request_that_may_have_taken_effect_is_never_called_definite() -> None:
    """With these, the outcome is not known, or the work has begun."""
    for code in (-1, errors.REQUEST_TIMED_OUT, errors.NETWORK_EXCEPTION, errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
        assert TABLE[code].effect is Effect.UNKNOWN


@pytest.mark.parametrize("entry", TABLE.values(), ids=lambda e: e.name)
def test_librdkafka_has_the_same_name_for_it(entry: ErrorEntry) -> None:
    name = KafkaError(entry.code).name()
    assert entry.librdkafka == (None if name.startswith("ERR_") else name)
    assert (entry.apis == (LOCAL,)) is (entry.code < -1)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *(("47", 47), ("-1", -1), ("+90", 90), (" 51 ", 51), ("-144", -144)),
        *(("INVALID_PRODUCER_EPOCH", 47), ("invalid_producer_epoch", 47), ("InvalidProducerEpoch", 47)),
        *(("InvalidPidMappingException", 49), ("org.apache.kafka.common.errors.ProducerFencedException", 90)),
        *(("KafkaError._FENCED", -144), ("RD_KAFKA_RESP_ERR__STATE", -172), ("MSG_SIZE_TOO_LARGE", 10)),
        *(("concurrent", 51), ("txn-timeout", 50), ("NONE", 0)),
    ],
)
def test_an_error_is_found_by_any_name(text: str, code: int) -> None:
    found = look_up(text)
    assert isinstance(found, ErrorEntry)
    assert found.code == code


def test_a_part_of_several_names_is_answered_with_these_names() -> None:
    found = look_up("epoch")
    assert isinstance(found, NotFound)
    assert "INVALID_PRODUCER_EPOCH" in found.similar
    assert "STALE_BROKER_EPOCH" not in found.similar, "no client receives it"


def test_a_misspelt_name_is_answered_with_similar_names() -> None:
    found = look_up("PRODUCER_FENCD")
    assert isinstance(found, NotFound)
    assert "PRODUCER_FENCED" in found.similar


def test_other_texts_are_not_found() -> None:
    for text in ("9999", "-12345", "xyzzy plugh", "_", ""):
        assert look_up(text) == NotFound(asked=text, similar=()), text


def test_other_errors_of_kafka_have_at_least_their_name() -> None:
    assert look_up("101") == OtherError(code=101, name="DUPLICATE_BROKER_REGISTRATION", retriable=False)


def test_the_texts_of_librdkafka_are_the_library_s() -> None:
    assert {code: KafkaError(code).str() for code in LIBRDKAFKA_TEXTS} == LIBRDKAFKA_TEXTS
    assert {
        code for code, entry in TABLE.items() if entry.librdkafka and code != errors.NONE
    } <= LIBRDKAFKA_TEXTS.keys()


@pytest.mark.parametrize("code", sorted(LIBRDKAFKA_TEXTS))
def test_an_error_is_found_by_what_librdkafka_prints(code: int) -> None:
    error = KafkaError(code)
    for text in (
        error.str(),
        error.str().partition(": ")[2] or error.str(),
        repr(error),
        f"Commit failed: {error.str()}",
    ):
        found = look_up(text)
        assert not isinstance(found, NotFound), text
        assert found.code == code, text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("fenced", "PRODUCER_FENCED"),
        ("Fenced", "PRODUCER_FENCED"),
        ("_FENCED", "_FENCED"),
        ("RD_KAFKA_RESP_ERR__FENCED", "_FENCED"),
        (
            "org.apache.kafka.common.errors.ProducerFencedException: There is a newer producer with the same id",
            "PRODUCER_FENCED",
        ),
        ("orders-0: INVALID_PRODUCER_EPOCH (47): hint", "INVALID_PRODUCER_EPOCH"),
    ],
)
def test_an_error_is_found_by_what_users_say_and_logs_print(text: str, name: str) -> None:
    found = look_up(text)
    assert not isinstance(found, NotFound)
    assert found.name == name
