"""Three brokers of Apache Kafka and `--brokers 3`: what a client is told at the wrong broker, and in a failover."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fencepost.testing import Broker
from tests.conformance.failovers import expected, told_by_failover
from tests.conformance.three_brokers import SETTINGS, ApacheBrokers, FencepostBrokers
from tests.conformance.wrong_nodes import is_refused_only_here, told_answers
from tests.engines.apache_kafka import apache_kafka_cluster

REFUSAL = "NOT_LEADER_OR_FOLLOWER"
# Three JVMs start, and one of them again after a failover that the others notice by their timeouts.
ON_APACHE_KAFKA = [pytest.mark.engines, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def theirs() -> Iterator[ApacheBrokers]:
    # Leaders move only when a broker is lost: not back again, and not because a busy machine lets a broker wait.
    settings = {"auto.leader.rebalance.enable": "false", "broker.session.timeout.ms": "15000"}
    with apache_kafka_cluster(settings, with_doors=True) as cluster:
        brokers = ApacheBrokers(cluster)
        yield brokers
        brokers.close()


@contextmanager
def our_brokers(how: str = "stop") -> Iterator[FencepostBrokers]:
    with Broker(brokers=3, settings=SETTINGS) as broker:
        brokers = FencepostBrokers(broker, how)
        yield brokers
        brokers.close()


class TestOnApacheKafka:
    pytestmark = ON_APACHE_KAFKA

    def test_a_request_at_the_wrong_broker_gets_apache_kafkas_answer(self, theirs: ApacheBrokers) -> None:
        with our_brokers() as ours:
            answers = list(told_answers(ours))
        differing = []
        for (question, our), (same_question, their) in zip(answers, told_answers(theirs), strict=True):
            assert question == same_question
            if is_refused_only_here(question):
                is_right = REFUSAL in our and REFUSAL not in their
            else:
                is_right = our == their
            if not is_right:
                differing.append(f"{question}\n-- Apache Kafka\n{their}\n-- Fencepost\n{our}")
        assert not differing, "\n\n".join(differing)

    def test_clients_of_apache_kafka_are_told_what_we_expect_when_the_coordinator_is_lost(
        self, theirs: ApacheBrokers
    ) -> None:
        assert told_by_failover(theirs) == expected()


@pytest.mark.parametrize("how", ["stop", "pause"])
def test_clients_are_told_what_apache_kafka_tells_when_the_coordinator_is_lost(how: str) -> None:
    with our_brokers(how) as ours:
        assert told_by_failover(ours) == expected()
