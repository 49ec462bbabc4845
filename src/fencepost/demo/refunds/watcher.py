"""A read_committed reader that reads the topics throughout the demo, with confluent-kafka."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from fencepost.demo.report import DemoFailed
from fencepost.demo.topics import QUIET, SEE_LOG, Offsets, Seen, seen_of

TIMEOUT_S = 60.0


class Watcher:
    """Reads in its own thread, during a `with` block. `seen` contains the records so far, in order."""

    def __init__(self, bootstrap_servers: str, start: Offsets) -> None:
        self.seen: list[Seen] = []
        self._positions = dict(start)
        self._failure: str | None = None
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "fencepost-demo",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                # The demo may kill the broker, and restarts it within a second.
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                **QUIET,
            }
        )
        self._consumer.assign([TopicPartition(t, p, offset) for (t, p), offset in start.items()])
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def count(self, topic: str) -> int:
        return sum(record.topic == topic for record in self.seen)

    def await_offsets(self, ends: Offsets) -> None:
        """Wait until the reader has reached these offsets."""
        deadline = time.monotonic() + TIMEOUT_S
        while behind := [f"{t}-{p}" for (t, p), end in ends.items() if self._positions[t, p] < end]:
            if self._failure is not None:
                raise DemoFailed(f"the reader of the outputs stopped: {self._failure}", SEE_LOG)
            if time.monotonic() > deadline:
                raise DemoFailed(
                    f"the reader of the outputs did not reach the end of {', '.join(behind)} in {TIMEOUT_S:g} s",
                    "a transaction may still be open",
                )
            time.sleep(0.02)

    def _watch(self) -> None:
        try:
            while not self._stop.is_set():
                for message in self._consumer.consume(1000, 0.1):
                    self._take(message)
        except KafkaException as error:
            self._failure = error.args[0].str()

    def _take(self, message: Any) -> None:
        error = message.error()
        if error is None:
            self.seen.append(seen_of(message))
        elif error.code() == KafkaError._PARTITION_EOF:
            # This offset is beyond the markers, which the client does not deliver.
            self._positions[message.topic(), message.partition()] = message.offset()
        elif error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise KafkaException(error)
