"""The order service that `order_crash` kills. It writes one order, and waits between payment and shipment.

    python -m fencepost.demo.order_service BOOTSTRAP_SERVERS ORDER_ID [TRANSACTIONAL_ID]

It prints `paid` when order and payment are acknowledged, and waits for a line on stdin. Then it writes the shipment
and prints `shipped`.
"""

from __future__ import annotations

import random
import sys

from fencepost.demo.orders import OrderProducer, records_of_order


def write_order(bootstrap_servers: str, order_id: str, transactional_id: str | None = None) -> None:
    producer = OrderProducer(bootstrap_servers, transactional_id)
    order, payment, shipment = records_of_order(order_id, random.Random(order_id))
    if transactional_id is not None:
        producer.init_transactions()
        producer.begin()
    producer.send([order], order_id)
    producer.send([payment], order_id)
    print("paid", flush=True)
    if not sys.stdin.readline():
        sys.exit("stdin was closed before the shipment")
    producer.send([shipment], order_id)
    if transactional_id is not None:
        producer.commit()
    print("shipped", flush=True)


if __name__ == "__main__":
    write_order(*sys.argv[1:])
