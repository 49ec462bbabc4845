"""Sequences, duplicates, gaps and epochs in every order, on a real Apache Kafka: it answers, and stores, what we do."""

from __future__ import annotations

import random

import pytest

from tests.conformance.test_against_apache_kafka import ApacheTarget
from tests.support.conformance_sequences import NEVER_BEHIND, stories, told_sequences, transactional_stories
from tests.support.node import PureBroker
from tests.support.placements import described

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

# Each has a partition, and Apache Kafka keeps several files open for each.
AT_ONCE = 800


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
    assert not described(theirs, told_sequences(PureBroker(), "sequences", words, version))
