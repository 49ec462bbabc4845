"""The tables of the playground: every error has a recipe, and every recipe is made of buttons that exist."""

from __future__ import annotations

import pytest

from fencepost.client.transaction import ProducerIdentity
from fencepost.protocol import errors
from fencepost.protocol.batch import decode_header, encode_batch, encode_marker, stamp
from fencepost.protocol.messages import EndTxnResponse, ProduceRequest, ProduceResponse
from fencepost.protocol.produced import RefusedBatch, check_produce_batch
from fencepost.web.learn.playground.buttons import BUTTONS, OF_PRODUCER, Click, check, says
from fencepost.web.learn.playground.guide import GUIDE, ProducerSteps, Progress, advance, missed_step
from fencepost.web.learn.playground.messages import batch, error_in, plain
from fencepost.web.learn.playground.partition import partition_document
from fencepost.web.learn.playground.recipes import RECIPES, WANTED

WHO = ProducerIdentity("orders", 7, 3)


def test_every_error_that_a_transaction_can_meet_has_a_recipe() -> None:
    assert {errors.name_of(code) for code in RECIPES} == {errors.name_of(code) for code in WANTED}


def test_every_recipe_is_made_of_buttons_that_exist() -> None:
    wrong = {recipe.name: check(click) for recipe in RECIPES.values() for click in recipe.clicks if check(click)}
    assert wrong == {}


def test_most_recipes_cause_their_error_for_real() -> None:
    injected = [recipe.name for recipe in RECIPES.values() if recipe.is_injected]
    assert len(injected) < len(RECIPES) / 2, injected


@pytest.mark.parametrize(
    ("click", "problem"),
    [
        (Click("explode"), "there is no button 'explode'"),
        (Click("produce", "nonsense"), "produce has no option 'nonsense'"),
        (Click("clock"), "clock needs an option: timeout, expiration"),
        (Click("begin", producer="C"), "there is no producer 'C'"),
    ],
)
def test_a_click_that_is_not_on_the_page_is_refused(click: Click, problem: str) -> None:
    assert check(click) == problem


def test_the_guide_counts_its_own_clicks_and_notices_others() -> None:
    progress = Progress()
    for number, step in enumerate(GUIDE):
        assert check(step.click) is None
        assert progress == Progress(number)
        assert advance(progress, Click("kill"), None) == Progress(number, is_astray=True)
        assert advance(progress, step.click, errors.INVALID_TXN_STATE) == Progress(number, is_astray=True)
        progress = advance(progress, step.click, step.error_code)
    assert progress == Progress(len(GUIDE))
    assert advance(progress, Click("kill"), None) == progress
    astray = Progress(3, is_astray=True)
    assert advance(astray, GUIDE[3].click, GUIDE[3].error_code) == astray
    assert advance(astray, Click("reset"), None) == Progress()


def test_a_click_in_words_names_the_producer_only_where_there_is_one() -> None:
    assert says(Click("produce", "damaged", "B")) == "B: Produce (with a wrong checksum)"
    assert says(Click("kill")) == "Kill the broker"


@pytest.mark.parametrize(
    ("mistake", "code"),
    [
        ("damaged", errors.CORRUPT_MESSAGE),
        ("too-large", errors.MESSAGE_TOO_LARGE),
        ("control-batch", errors.INVALID_RECORD),
        ("unknown-codec", errors.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_a_mistake_in_a_batch_is_what_a_broker_refuses(mistake: str, code: int) -> None:
    refused = check_produce_batch(batch(WHO, 0, "k", "v", 1000, mistake))
    assert isinstance(refused, RefusedBatch)
    assert refused.code == code


def test_every_other_option_of_produce_sends_a_sound_batch() -> None:
    in_batch = {"damaged", "too-large", "control-batch", "unknown-codec"}
    for option in {"", *BUTTONS["produce"].options} - in_batch:
        header = check_produce_batch(batch(WHO, 5, "k", "v", 1000, option))
        assert not isinstance(header, RefusedBatch), option
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 5)


def test_a_request_shows_the_fields_of_its_version_and_the_header_of_its_batch() -> None:
    data = ProduceRequest.PartitionProduceData(0, batch(WHO, 5, "k", "v", 1000))
    request = ProduceRequest("orders", -1, 2000, [ProduceRequest.TopicProduceData("t", bytes(16), [data])])
    shown = plain(request, 12)
    topic = shown["topic_data"][0]
    assert "topic_id" not in topic
    assert topic["name"] == "t"
    assert topic["partition_data"][0]["records"]["base_sequence"] == 5
    assert plain(request, 13)["topic_data"][0]["topic_id"] == "00" * 16


def test_the_error_of_an_answer_is_the_first_one_in_it() -> None:
    assert error_in(plain(EndTxnResponse(error_code=51), 5)) == errors.CONCURRENT_TRANSACTIONS
    partition = ProduceResponse.PartitionProduceResponse(0, errors.INVALID_PRODUCER_EPOCH, -1)
    answer = ProduceResponse([ProduceResponse.TopicProduceResponse("t", bytes(16), [partition])])
    assert error_in(plain(answer, 12)) == errors.INVALID_PRODUCER_EPOCH
    assert error_in(plain(EndTxnResponse(), 5)) == errors.NONE


def stored(at: int, made: bytes) -> tuple[object, bytes]:
    raw = stamp(made, at, 0)
    return decode_header(raw), raw


def test_the_log_shows_each_outcome_and_what_both_readers_get() -> None:
    def record(producer_id: int, sequence: int, key: bytes) -> bytes:
        return encode_batch([(key, b"v")], 1000, producer_id, 0, sequence, transactional=True)

    batches = [
        stored(0, record(1, 0, b"a")),
        stored(1, record(2, 0, b"b")),
        stored(2, encode_marker(1, 0, True, 0, 1000)),
        stored(3, encode_marker(2, 0, False, 0, 1000)),
        stored(4, record(3, 0, b"c")),
        stored(5, record(1, 1, b"d")),
        stored(6, encode_marker(1, 0, True, 0, 1000)),
    ]
    document = partition_document("orders-0", 0, 4, 7, batches)  # type: ignore[arg-type]
    assert [(e["kind"], e.get("fate", e.get("marker"))) for e in document["entries"]] == [
        ("record", "committed"),
        ("record", "aborted"),
        ("marker", "COMMIT"),
        ("marker", "ABORT"),
        ("record", "open"),
        ("record", "committed"),
        ("marker", "COMMIT"),
    ]
    assert document["read_uncommitted"] == ["a", "b", "c", "d"]
    # The open transaction at offset 4 holds back what is committed behind it.
    assert document["read_committed"] == ["a"]


def test_each_button_says_what_it_does() -> None:
    labels = {button.name for button in BUTTONS.values()}
    assert {"begin", "produce", "add-offsets", "commit", "abort", "kill", "start", "delay-end", "clock"} <= labels
    assert all(button.about for button in BUTTONS.values())
    assert {button.name for button in OF_PRODUCER} <= labels


NEW = ProducerSteps("A", is_registered=False, has_begun=False, may_have_written=False)
REGISTERED = NEW._replace(is_registered=True)
BEGUN = REGISTERED._replace(has_begun=True)


@pytest.mark.parametrize(
    ("before", "code", "meaning"),
    [
        (NEW, errors.PRODUCER_FENCED, "has not registered yet"),
        (NEW, errors.INVALID_PRODUCER_EPOCH, "has not registered yet"),
        (NEW, errors.NETWORK_EXCEPTION, None),
        (NEW, errors.NONE, None),
        (REGISTERED, errors.INVALID_TXN_STATE, "has no transaction to end"),
        (REGISTERED, errors.PRODUCER_FENCED, None),
        (BEGUN, errors.INVALID_TXN_STATE, "is empty"),
        (BEGUN._replace(may_have_written=True), errors.INVALID_TXN_STATE, None),
    ],
)
def test_a_step_that_was_left_out_explains_an_error_only_if_it_is_the_cause(
    before: ProducerSteps, code: int, meaning: str | None
) -> None:
    missed = missed_step(before, code)
    assert (missed is None) if meaning is None else (missed is not None and meaning in missed.meaning)
