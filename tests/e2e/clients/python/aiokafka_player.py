"""Plays the steps of players.py with aiokafka. Its event loop has a thread of its own; the steps wait for it."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Coroutine
from io import StringIO
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.e2e.clients.python.playing import TIMEOUT_S, Mover, Player, Record, Sorter, ends_of, serve

LOOP = asyncio.new_event_loop()


def wait(coroutine: Coroutine[Any, Any, Any]) -> Any:
    future = asyncio.run_coroutine_threadsafe(coroutine, LOOP)
    try:
        return future.result(TIMEOUT_S)
    except TimeoutError:
        if future.done():
            raise
        raise AssertionError(f"{coroutine} took more than {TIMEOUT_S:g} s\n{stacks()}") from None


def stacks() -> str:
    """Where every task of the client is: what it waits for is there."""
    out = StringIO()
    for task in asyncio.all_tasks(LOOP):
        task.print_stack(file=out)
    return out.getvalue()


class AiokafkaPlayer(Player):
    def __init__(self, servers: str) -> None:
        super().__init__()
        self.servers = servers

    def hello(self) -> dict[str, str]:
        return {"client": "aiokafka", "version": aiokafka.__version__}

    def open(self, name: str, transactional_id: str = "", timeout_ms: int = 60_000) -> None:
        config: dict[str, Any] = {}
        if transactional_id:
            config = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}

        async def start() -> None:
            self.producers[name] = AIOKafkaProducer(bootstrap_servers=self.servers, retry_backoff_ms=20, **config)
            await self.producers[name].start()

        wait(start())

    def begin(self, name: str) -> None:
        wait(self.producers[name].begin_transaction())

    def send(self, name: str, topic: str, partition: int, values: list[str]) -> None:
        wait(send(self.producers[name], topic, [(partition, value.encode()) for value in values]))

    def commit(self, name: str) -> None:
        wait(self.producers[name].commit_transaction())

    def abort(self, name: str) -> None:
        wait(self.producers[name].abort_transaction())

    def close(self, name: str) -> None:
        wait(self.producers.pop(name).stop())

    def read(self, topic: str, partitions: int, isolation: str, until: str) -> list[list[str]]:
        async def read() -> list[list[str]]:
            found = Sorter(partitions, until)
            config = {"isolation_level": isolation, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 20}
            async with AIOKafkaConsumer(bootstrap_servers=self.servers, **config) as consumer:
                consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
                while found.wants_more():
                    for where, records in (await consumer.getmany(timeout_ms=100)).items():
                        for record in records:
                            found.add(where.partition, record.value)
            return found.values

        values: list[list[str]] = wait(read())
        return values

    def mover(self, name: str, **config: Any) -> None:
        self.open(name, config["transactional_id"])
        self.movers[name] = AiokafkaMover(self.servers, self.producers[name], **config)

    def name_of(self, error: BaseException) -> str:
        return type(error).__name__


class AiokafkaMover(Mover):
    def __init__(self, servers: str, producer: AIOKafkaProducer, **config: Any) -> None:
        self.group, self.source, self.target = config["group"], config["source"], config["target"]
        self.producer = producer

        async def start() -> None:
            self.consumer = AIOKafkaConsumer(
                bootstrap_servers=servers,
                group_id=self.group,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                enable_auto_commit=False,
                session_timeout_ms=config["session_ms"],
                heartbeat_interval_ms=100,
                fetch_max_wait_ms=20,
            )
            self.consumer.subscribe([self.source])
            await self.consumer.start()

        wait(start())

    def take(self, count: int, wait_s: float) -> list[Record]:
        found = wait(self.consumer.getmany(timeout_ms=int(wait_s * 1000), max_records=count))
        return [Record(where.partition, record.offset, record.value) for where in found for record in found[where]]

    def begin(self) -> None:
        wait(self.producer.begin_transaction())

    def send(self, records: list[Record]) -> None:
        wait(send(self.producer, self.target, [(record.partition, record.value) for record in records]))
        offsets = {TopicPartition(self.source, partition): offset for partition, offset in ends_of(records).items()}
        wait(self.producer.send_offsets_to_transaction(offsets, self.group))

    def commit(self) -> None:
        wait(self.producer.commit_transaction())

    def abort(self) -> None:
        wait(self.producer.abort_transaction())
        for where in self.consumer.assignment():
            self.consumer.seek(where, wait(self.consumer.committed(where)) or 0)


async def send(producer: AIOKafkaProducer, topic: str, records: list[tuple[int, bytes]]) -> None:
    """Produce and wait until the broker has taken every record."""
    sent = [await producer.send(topic, value, partition=partition) for partition, value in records]
    await asyncio.gather(*sent)


if __name__ == "__main__":
    logging.disable()
    threading.Thread(target=LOOP.run_forever, daemon=True).start()
    serve(AiokafkaPlayer(sys.argv[1]))
