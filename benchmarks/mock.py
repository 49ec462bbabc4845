"""librdkafka's mock cluster in a process of its own: it prints its address and ends when its stdin ends.

    python -m benchmarks.mock

It keeps at most 5 MB of each partition in memory, writes no markers and hides no aborted records. So it shows how fast
the client itself can be. A client's settings cannot name the address of a mock cluster, but the metadata has it.
"""

from __future__ import annotations

import sys

from confluent_kafka import Producer


def main() -> None:
    host = Producer({"bootstrap.servers": "127.0.0.1:9", "test.mock.num.brokers": 1, "log_level": 0})
    brokers = host.list_topics(timeout=10).brokers
    print(",".join(f"{broker.host}:{broker.port}" for broker in brokers.values()), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
