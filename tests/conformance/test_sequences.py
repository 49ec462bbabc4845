"""Sequences, duplicates, gaps and epochs in every order, on a real Apache Kafka: it answers, and stores, what we do."""

from __future__ import annotations

import random

import pytest

from fencepost.protocol import errors
from tests.conformance.placements import described
from tests.conformance.sequences import NEVER_BEHIND, stories, told_sequences, transactional_stories
from tests.conformance.test_against_apache_kafka import ApacheTarget
from tests.pure_broker import PureBroker

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

# Each has a partition, and Apache Kafka keeps several files open for each.
AT_ONCE = 800
Told = dict[str, list[str]]


@pytest.mark.parametrize("length", [2, pytest.param(3, marks=pytest.mark.engines)])
def test_an_idempotent_producer_is_held_to_its_order(length: int, oracle: ApacheTarget) -> None:
    words = stories(length)
    if len(words) > AT_ONCE:
        words = random.Random(length).sample(words, AT_ONCE)
    theirs = told_sequences(oracle, f"sequences-{length}", words, None)
    assert not described(theirs, told_sequences(PureBroker(), "sequences", words, None))


@pytest.mark.parametrize("version", [1, 2])
def test_a_transactional_producer_is_held_to_its_order(version: int, oracle: ApacheTarget) -> None:
    words = [word for word in transactional_stories() if version == 2 or word not in NEVER_BEHIND]
    theirs = told_sequences(oracle, f"sequences-tv{version}", words, version)
    ours = told_sequences(PureBroker(), "sequences", words, version)
    if version == 1:
        cut = cut_at_a_duplicate_of_an_earlier_transaction(theirs, ours)
        assert 0 < cut < len(words) // 2
    assert not described(theirs, ours)


def cut_at_a_duplicate_of_an_earlier_transaction(theirs: Told, ours: Told) -> int:
    """From there on they differ, on purpose: see deviations.md. Returns of how many stories the end was cut off."""
    count = 0
    for word in theirs:
        for place, (their, our) in enumerate(zip(theirs[word], ours[word])):
            is_one = "|" in word and their.endswith("duplicate=True")
            if is_one and f"{errors.name_of(errors.OUT_OF_ORDER_SEQUENCE_NUMBER)} offset=-1" in our:
                del theirs[word][place:], ours[word][place:]
                count += 1
                break
    return count
