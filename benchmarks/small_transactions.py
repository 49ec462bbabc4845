"""One client process: N transactional producers, each writing one record to each of three topics per transaction.

    python -m benchmarks.small_transactions HOST:PORT PRODUCERS SECONDS

Prints one JSON line with the transactions per second and the latencies. The first second is not counted.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid

from confluent_kafka import Producer

TOPICS = ("bench-orders", "bench-payments", "bench-shipments")
VALUE = b"x" * 100
WARM_UP_S = 1.0


class Window:
    """The measured time: it begins when all producers are ready and have warmed up."""

    def __init__(self, producers: int, seconds: float) -> None:
        self.seconds = seconds
        self.begins = self.ends = 0.0
        self.everybody = threading.Barrier(producers, self._open)

    def _open(self) -> None:
        self.begins = time.perf_counter() + WARM_UP_S
        self.ends = self.begins + self.seconds


def run_producer(bootstrap: str, name: str, window: Window, latencies: list[float], failures: list[str]) -> None:
    try:
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0})
        producer.init_transactions(60)
        window.everybody.wait(120)
        while (began := time.perf_counter()) < window.ends:
            producer.begin_transaction()
            for topic in TOPICS:
                producer.produce(topic, VALUE, key=b"k")
            producer.commit_transaction(60)
            if began >= window.begins:
                latencies.append(time.perf_counter() - began)
    except Exception as e:
        window.everybody.abort()
        failures.append(f"{name}: {type(e).__name__} {e}")


def measure(bootstrap: str, producers: int, seconds: float) -> dict[str, float]:
    run = uuid.uuid4().hex[:8]
    window = Window(producers, seconds)
    latencies: list[list[float]] = [[] for _ in range(producers)]
    failures: list[str] = []
    threads = [
        threading.Thread(target=run_producer, args=(bootstrap, f"bench-{run}-{i}", window, latencies[i], failures))
        for i in range(producers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise SystemExit("error: " + "; ".join(failures))
    if not any(latencies):
        raise SystemExit(f"error: no transaction was done within {seconds} s")
    every = sorted(latency for own in latencies for latency in own)
    return {
        "transactions_per_s": len(every) / seconds,
        "p50_ms": every[len(every) // 2] * 1000,
        "p99_ms": every[int(len(every) * 0.99)] * 1000,
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))
