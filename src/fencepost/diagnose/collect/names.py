"""The transactional ids of producer ids, asked of the coordinators in few requests and remembered."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from fencepost.client.admin.transactions import list_transactions
from fencepost.client.client import KafkaClient
from fencepost.client.failures import ClientError

# A producer id without a transactional id may get one: its coordinator was loading, or did not answer.
ASK_AGAIN_S = 10.0


class TransactionalIds:
    """Asks about each producer id once; about those without a transactional id again after a while."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._names: dict[int, str] = {}
        self._asked: dict[int, float] = {}
        self.problems: tuple[str, ...] = ()

    def learn(self, producer_ids: Collection[int]) -> None:
        now = time.monotonic()
        wanted = {
            id_
            for id_ in producer_ids
            if id_ >= 0 and id_ not in self._names and now - self._asked.get(id_, -ASK_AGAIN_S) >= ASK_AGAIN_S
        }
        if not wanted:
            return
        self._asked.update(dict.fromkeys(wanted, now))
        try:
            answers = list_transactions(self._client, producer_ids=wanted)
        except ClientError as e:
            self.problems = (f"transactional ids are unknown: {e}",)
            return
        self.problems = tuple(answers.problems)
        self._names.update((txn.producer_id, txn.transactional_id) for txn in answers.found.values())

    @property
    def known(self) -> Mapping[int, str]:
        """The transactional ids that were learned, by producer id."""
        return self._names

    def of(self, producer_id: int) -> str | None:
        return self._names.get(producer_id)
