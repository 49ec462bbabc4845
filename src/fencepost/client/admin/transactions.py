"""Questions to the coordinators: which transactions there are, and the state of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fencepost.client.admin.answers import (
    DEADLINE_S,
    Answers,
    DescribedTxn,
    ListedTxn,
    NamedPartition,
    Rpc,
    ask,
    by_value,
    chunks,
    moved,
)
from fencepost.client.client import COORDINATOR_MOVED, TRANSACTION, KafkaClient, retry
from fencepost.client.failures import BrokerError, ClientError
from fencepost.protocol import errors
from fencepost.protocol.messages import (
    DescribeRpcsRequest,
    DescribeTransactionsRequest,
    FindCoordinatorRequest,
    ListTransactionsRequest,
)

# Keeps requests and replies at a few hundred kilobytes.
IDS_PER_REQUEST = 1000
MOST_IDS_WITH_RPCS = 100
# Asked about to learn what this user may see. The question mark keeps it apart from the prefixes that users are given.
UNUSED_ID = "?which-ids-may-this-user-see"


def list_transactions(
    client: KafkaClient, states: Collection[str] = (), producer_ids: Collection[int] = ()
) -> Answers[str, ListedTxn]:
    """The transactional ids of all coordinators."""
    answers: Answers[str, ListedTxn] = Answers()
    request = ListTransactionsRequest(sorted(states), sorted(producer_ids))
    for node_id in sorted(client.brokers()):
        try:
            response = ask(client, node_id, request)
        except ClientError as e:
            answers.problems.append(f"broker {node_id} could not list its transactions: {e}")
            continue
        for txn in response.transaction_states:
            listed = ListedTxn(txn.transactional_id, node_id, txn.producer_id, txn.transaction_state)
            answers.found[txn.transactional_id] = listed
    return answers


def why_ids_are_hidden(client: KafkaClient) -> str | None:
    """Why `list_transactions` may have left out ids; None if this user may see every id. Raises ClientError.

    ListTransactions omits what a user may not see without an error. DescribeTransactions checks the permission before
    it looks for the id, so its answer about an id that no producer has tells whether the permission is for all ids.
    """
    response = client.send(client.any_broker(), DescribeTransactionsRequest([UNUSED_ID]))
    [answer] = response.transaction_states
    if answer.error_code not in errors.DENIALS:
        return None
    refusal = BrokerError(answer.error_code, "DESCRIBE on all transactional ids")
    return f"this user may not see every transactional id: {refusal}"


def describe_transactions(client: KafkaClient, coordinators: Mapping[str, int]) -> Answers[str, DescribedTxn]:
    """Describe some ids, given the coordinator of each. Ids that do not exist are left out."""
    answers: Answers[str, DescribedTxn] = Answers()
    for node_id, ids in by_value(coordinators).items():
        for chunk in chunks(ids, IDS_PER_REQUEST):
            _describe_on(client, node_id, chunk, answers)
    return answers


def _describe_on(client: KafkaClient, node_id: int, ids: Sequence[str], answers: Answers[str, DescribedTxn]) -> None:
    try:
        response = ask(client, node_id, DescribeTransactionsRequest(list(ids)), lambda r: moved(r.transaction_states))
    except ClientError as e:
        answers.problems.append(f"broker {node_id} could not describe transactions: {e}")
        return
    for txn in response.transaction_states:
        if txn.error_code == errors.NONE:
            answers.found[txn.transactional_id] = _described(txn, node_id)
        elif txn.error_code != errors.TRANSACTIONAL_ID_NOT_FOUND:
            answers.problems.append(str(BrokerError(txn.error_code, f"transaction `{txn.transactional_id}`")))


def _described(txn: Any, coordinator: int) -> DescribedTxn:
    return DescribedTxn(
        txn.transactional_id,
        coordinator,
        txn.transaction_state,
        txn.producer_id,
        txn.producer_epoch,
        txn.transaction_timeout_ms,
        txn.transaction_start_time_ms,
        tuple(sorted(NamedPartition(t.topic, p) for t in txn.topics for p in t.partitions)),
    )


def describe_transaction(client: KafkaClient, transactional_id: str) -> tuple[int, DescribedTxn | None]:
    """The coordinator of an id, and its description of the id: None if the id does not exist. Raises ClientError."""

    def attempt() -> tuple[int, DescribedTxn | None]:
        coordinator = _find_coordinators(client, [transactional_id])[transactional_id]
        response = client.send(client.broker(coordinator), DescribeTransactionsRequest([transactional_id]))
        [txn] = response.transaction_states
        if txn.error_code == errors.TRANSACTIONAL_ID_NOT_FOUND:
            return coordinator, None
        if txn.error_code:
            raise BrokerError(txn.error_code, f"transaction `{transactional_id}`")
        return coordinator, _described(txn, coordinator)

    return retry(attempt, DEADLINE_S, COORDINATOR_MOVED)


def _find_coordinators(client: KafkaClient, ids: Sequence[str]) -> dict[str, int]:
    connection = client.any_broker()
    found = {}
    if connection.session.max_version(10) >= 4:
        response = client.send(connection, FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=list(ids)))
        answers = {c.key: c for c in response.coordinators}
    else:
        answers = {id_: client.send(connection, FindCoordinatorRequest(id_, TRANSACTION)) for id_ in ids}
    for id_, answer in answers.items():
        if answer.error_code:
            raise BrokerError(answer.error_code, f"coordinator of `{id_}`", answer.error_message)
        found[id_] = int(answer.node_id)
    return found


def describe_rpcs(client: KafkaClient, ids: Collection[str]) -> dict[str, tuple[Rpc, ...]] | None:
    """The last requests of some ids (at most a hundred), oldest first; None if the brokers do not remember requests."""
    connection = client.any_broker()
    if connection.session.max_version(DescribeRpcsRequest.definition.api_key) < 0:
        return None
    response = client.send(connection, DescribeRpcsRequest(sorted(ids)[:MOST_IDS_WITH_RPCS]))
    return {
        t.transactional_id: tuple(Rpc(*(getattr(rpc, name) for name in Rpc._fields)) for rpc in t.rpcs)
        for t in response.transactions
    }
