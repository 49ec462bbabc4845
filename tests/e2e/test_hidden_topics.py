"""The tools for a user who may not describe every topic: a broker leaves out such topics without an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, AclPermissionType, ResourceType

from fencepost.broker.config import STANDARD_AUTHORIZER
from fencepost.cli.options import Unanswered
from fencepost.testing import Broker
from tests.e2e.test_acls import add
from tests.examples import hang
from tests.readers.reading import TIMEOUT_S
from tests.txn_tools import SETTINGS, Run, commit_offsets, producer_of, runner, write

GUARDED = SETTINGS | {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
HIDDEN = "topics may be hidden from this user"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker with the topics `orders`, and `secret`, which the tests hide."""
    with Broker(data=tmp_path / "data", settings=GUARDED) as broker:
        broker.create_topic("orders")
        broker.create_topic("secret")
        yield broker


@pytest.fixture
def run(broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(broker.bootstrap_servers, capsys, monkeypatch)


def show_only(broker: Broker, topic: str) -> None:
    """From now on, this user may see one topic."""
    add(broker, ResourceType.TOPIC, topic, AclOperation.READ, permission=AclPermissionType.ALLOW)
    add(broker, ResourceType.TOPIC, "*", AclOperation.DELETE)  # A topic with an ACL is no longer open to everyone.


@pytest.mark.parametrize("command", [("txn", "hanging"), ("txn", "lso"), ("doctor",)], ids=" ".join)
def test_a_hang_on_a_topic_that_the_user_may_not_see_is_not_an_all_clear(
    broker: Broker, run: Run, command: tuple[str, ...]
) -> None:
    hang(broker.bootstrap_servers, "secret", "lost-1")
    show_only(broker, "orders")
    result = run(*command)
    assert result.exit_code in ((1, Unanswered.exit_code) if command == ("doctor",) else (Unanswered.exit_code,))
    assert HIDDEN in result.err
    assert "DESCRIBE on all topics: TOPIC_AUTHORIZATION_FAILED" in result.err
    if command == ("doctor",):
        assert HIDDEN in result.out


@pytest.mark.parametrize("command", [("txn", "hanging"), ("txn", "lso"), ("doctor",)], ids=" ".join)
def test_an_open_id_gives_away_a_topic_that_the_user_may_not_see(
    broker: Broker, run: Run, command: tuple[str, ...]
) -> None:
    producer = producer_of(broker.bootstrap_servers, "payments-1")
    write(producer, "secret", "half a payment", partitions=(0,))
    show_only(broker, "orders")
    assert f"{HIDDEN}, and `payments-1` is open there" in run(*command).err


def test_doctor_says_which_id_is_open_on_partitions_that_an_acl_denies(broker: Broker, run: Run) -> None:
    producer = producer_of(broker.bootstrap_servers, "payments-1")
    write(producer, "secret", "half a payment", partitions=(0,))
    add(broker, ResourceType.TOPIC, "secret", AclOperation.DESCRIBE)
    result = run("doctor", "--max-age", "1ms", "--json")
    assert result.exit_code == 1
    [found] = [f for f in json.loads(result.out)["findings"] if f["check"] == "out-of-sight"]
    assert found["severity"] == "problem"
    assert found["transactional_ids"] == ["payments-1"]
    assert "`payments-1`" in found["summary"]
    assert found["age_ms"] > 0


@pytest.mark.parametrize(
    "command",
    [
        ("txn", "explain", "orders-1"),
        ("txn", "fence", "orders-1", "--yes"),
        ("group", "list"),
        ("group", "describe", "billing"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_an_id_or_a_group_may_have_more_on_topics_that_the_user_may_not_see(
    broker: Broker, run: Run, command: tuple[str, ...]
) -> None:
    producer = producer_of(broker.bootstrap_servers, "orders-1")
    write(producer, "orders", "placed", partitions=(0,))
    producer.commit_transaction(TIMEOUT_S)
    commit_offsets(broker.bootstrap_servers, "billing", {("orders", 0): 0, ("secret", 0): 0})
    before = run(*command)
    assert (before.exit_code, HIDDEN in before.err) == (0, False)
    show_only(broker, "orders")
    after = run(*command)
    assert after.exit_code == Unanswered.exit_code
    assert f"warning: {HIDDEN}: DESCRIBE on all topics: TOPIC_AUTHORIZATION_FAILED" in after.err.replace(
        "it is not known whether a transaction hangs: ", ""
    )


def test_a_user_who_may_see_every_topic_gets_an_all_clear(broker: Broker, run: Run) -> None:
    assert run("txn", "hanging").exit_code == 0
    assert run("txn", "lso").exit_code == 0


def test_questions_about_one_topic_do_not_mention_others(broker: Broker, run: Run) -> None:
    show_only(broker, "orders")
    for command in ("hanging", "lso"):
        result = run("txn", command, "orders")
        assert (result.exit_code, HIDDEN in result.err) == (0, False)
