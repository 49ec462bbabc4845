"""The options of `format("fencepost")`: which are settings of the sink, which have no effect, which are refused."""

from __future__ import annotations

import re

import pytest

from fencepost.client.failures import BadClientSetting
from fencepost.spark.format.options import KAFKA, ONLY, REFUSED, WITHOUT_EFFECT, parse_options
from fencepost.spark.settings import parse_sink_settings

GIVEN = {"kafka.bootstrap.servers": "a:1", "transactional.id": "x", "topic": "t"}


def test_options_of_sparks_own_sink_become_settings_whatever_their_case() -> None:
    options = parse_options(
        {**GIVEN, "Kafka.Compression.Type": "lz4", "checkpointLocation": "/c", "includeHeaders": "true"}, is_stream=True
    )
    assert options.settings == {
        "bootstrap.servers": "a:1",
        "transactional.id": "x",
        "topic": "t",
        "compression.type": "lz4",
    }
    assert parse_sink_settings(options.settings).compression == "lz4"


def test_settings_of_the_sink_may_have_the_prefix_of_kafka() -> None:
    with_prefix = {KAFKA + name.removeprefix(KAFKA): value for name, value in GIVEN.items()}
    assert parse_options(with_prefix, is_stream=True) == parse_options(GIVEN, is_stream=True)


def test_a_setting_that_is_given_twice_with_two_values_is_refused_with_both() -> None:
    with pytest.raises(BadClientSetting, match=r"transactional\.id is given twice, as x and as y"):
        parse_options({**GIVEN, "kafka.transactional.id": "y"}, is_stream=True)


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT))
def test_a_setting_of_producers_that_has_no_effect_here_is_named(name: str) -> None:
    assert parse_options({**GIVEN, f"kafka.{name}": "1"}, is_stream=True).without_effect == (f"kafka.{name}",)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_setting_that_would_change_the_records_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(BadClientSetting, match=rf"option kafka.{name} cannot be used with this sink\n\nhint: leave it"):
        parse_options({**GIVEN, f"kafka.{name}": "1"}, is_stream=True)


@pytest.mark.parametrize("name", sorted(ONLY))
def test_a_setting_that_would_not_be_exactly_once_is_refused_with_the_value_that_is(name: str) -> None:
    allowed = ONLY[name][0]
    assert parse_options({**GIVEN, f"kafka.{name}": allowed.upper()}, is_stream=True).settings["topic"] == "t"
    with pytest.raises(BadClientSetting, match=f"option kafka.{name}=0, expected {allowed}"):
        parse_options({**GIVEN, f"kafka.{name}": "0"}, is_stream=True)


def test_answers_are_for_streams_and_tokens_for_plain_writes() -> None:
    stream = parse_options({**GIVEN, "adopt": "q", "run_batch": "3", "max_attempts": "5"}, is_stream=True)
    assert stream.answers == {"adopt": "q", "run_batch": 3, "max_attempts": 5}
    assert parse_options({**GIVEN, "token": "today"}, is_stream=False).token == "today"
    for options, is_stream, message in (
        ({"adopt": "q"}, False, "option adopt is for a streaming query"),
        ({"token": "today"}, True, "option token is for a plain write"),
        ({"skip_batch": "-1"}, True, "option skip_batch=-1 is not a whole number"),
    ):
        with pytest.raises(BadClientSetting, match=re.escape(message)):
            parse_options({**GIVEN, **options}, is_stream=is_stream)
