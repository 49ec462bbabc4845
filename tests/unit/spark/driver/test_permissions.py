"""Which permissions the sink needs, and the message about those that it lacks."""

from __future__ import annotations

from fencepost.client.settings import parse_settings
from fencepost.spark.driver.permissions import (
    DESCRIBE,
    GROUP,
    NOT_SHOWN,
    READ,
    TOPIC,
    WRITE,
    Permission,
    acl_commands,
    denied_topics,
    describe_missing,
    is_allowed,
    principal_of,
    to_commit,
    to_move_group,
    to_own,
    to_use_token,
    to_write,
    without_implied,
)

READ_AND_DESCRIBE = 264  # What Apache Kafka shows for a resource with an ACL for Read.


def test_an_operation_is_allowed_if_its_bit_is_set_or_the_broker_does_not_show_any() -> None:
    assert is_allowed(READ, READ_AND_DESCRIBE)
    assert is_allowed(DESCRIBE, READ_AND_DESCRIBE)
    assert not is_allowed(WRITE, READ_AND_DESCRIBE)
    assert not is_allowed(READ, 0)
    assert is_allowed(WRITE, NOT_SHOWN)


def test_a_query_needs_more_than_a_plain_frame() -> None:
    assert [str(p) for p in to_write(["b", "a"], is_noted=False)] == ["Write on topic a", "Write on topic b"]
    assert [str(p) for p in to_write(["a"], is_noted=True)] == ["Write on topic a", "Read on topic a"]
    assert [str(p) for p in without_implied([*to_own("x-1"), *to_commit("x-1")])] == [
        "Write on transactional-id x-1",
        "Read on group fencepost-marker-x-1",
    ]
    assert [str(p) for p in to_own("x-1")][1] == "Describe on group fencepost-marker-x-1"
    assert [str(p) for p in to_use_token("x 1", "day")] == ["Read on group fencepost-token-x%201:day"]
    assert [str(p) for p in to_move_group("g", ["s"])] == ["Read on group g", "Read on topic s"]


def test_the_message_names_the_principal_and_everything_that_is_missing_with_the_commands_that_add_it() -> None:
    missing = [Permission(TOPIC, "out", WRITE), Permission(TOPIC, "out", READ), Permission(GROUP, "a b", READ)]
    assert describe_missing(missing, "User:alice", "kafka:9092") == (
        "User:alice lacks 3 permissions of the sink: Write on topic out, Read on topic out, Read on group a b. Nothing "
        "is committed\n\nhint: an administrator of the cluster adds them with\n"
        "  kafka-acls --bootstrap-server kafka:9092 --add --allow-principal User:alice --operation Write "
        "--operation Read --topic out\n"
        "  kafka-acls --bootstrap-server kafka:9092 --add --allow-principal User:alice --operation Read --group 'a b'"
    )
    [line] = acl_commands(missing[:1], None, "kafka:9092")
    assert "--allow-principal User:NAME " in line
    assert describe_missing(missing[:1], None, "kafka:9092").startswith(
        "the principal of the client's certificate or token lacks a permission of the sink: Write on topic out."
    )


def test_the_principal_is_that_of_the_login() -> None:
    servers = {"bootstrap.servers": "kafka:9092"}
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "x"}
    assert principal_of(parse_settings(servers)) == "User:ANONYMOUS"
    assert principal_of(parse_settings({**servers, **login, "security.protocol": "SASL_PLAINTEXT"})) == "User:alice"
    certificate = {"security.protocol": "SSL", "ssl.certificate.location": "a.pem", "ssl.key.location": "a.key"}
    assert principal_of(parse_settings({**servers, **certificate})) is None
    token = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": print}
    assert principal_of(parse_settings({**servers, **token})) is None


def test_the_message_of_a_task_shows_which_topic_was_denied() -> None:
    looked = "task 3 (write 0, input partition 1): topic out.v-1: TOPIC_AUTHORIZATION_FAILED (29)"
    wrote = (
        "task 3: out-v-0 refused 77 bytes of transaction `x` (producer 1, epoch 0) with TOPIC_AUTHORIZATION_FAILED (29)"
    )
    assert denied_topics(looked) == {"out.v-1"}
    assert denied_topics(wrote) == {"out-v"}
    assert denied_topics("out-0 refused 77 bytes of transaction `x` with INVALID_RECORD (87)") == set()
