"""Whole replies, every field, in every version, on a real Apache Kafka: they must be ours."""

from __future__ import annotations

import pytest

from tests.conformance.replies import told_replies
from tests.conformance.test_against_apache_kafka import ApacheTarget
from tests.pure_broker import PureBroker

pytestmark = [pytest.mark.java, pytest.mark.slow]


def test_apache_kafka_gives_the_same_replies(oracle: ApacheTarget) -> None:
    ours, theirs = (list(told_replies(target, "replies")) for target in (PureBroker(), oracle))
    differing = [
        f"{name}\n-- Apache Kafka\n{their}\n-- Fencepost\n{our}"
        for (name, our), (same_name, their) in zip(ours, theirs, strict=True)
        if (name, our) != (same_name, their)
    ]
    assert not differing, "\n\n".join(differing)
