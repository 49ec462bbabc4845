"""Starts a broker with sample transactions and runs it until Ctrl-C: `make dev`.

    python -m scripts.dev [HOST:PORT [FOLDER]]

After the transactions of `fencepost demo brew`, one transaction stays open, until its timeout, and one hangs: it is
open on a partition and unknown to its coordinator. `fencepost txn` has something to explain then. The broker does not
verify the partitions of transactions (KIP-890), because nothing could hang otherwise.
The data stays in FOLDER: `.dev-data`, or `.dev-data-PORT` for another port. The workbench runs beside the broker at
127.0.0.1:8080, or at a free port if that is taken, and its pages may change the cluster.
"""

from __future__ import annotations

import signal

if __name__ == "__main__":
    # Until there is a process to end, Ctrl-C ends this one, also in the middle of an import.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import socket
import subprocess
import sys
import time
from pathlib import Path

from fencepost.child import start_module, start_whole
from fencepost.client.client import TRANSACTION, KafkaClient
from fencepost.interrupts import INTERRUPTED
from fencepost.protocol import errors
from fencepost.protocol.batch import encode_batch
from fencepost.protocol.messages import InitProducerIdRequest, ProduceRequest

ROOT = Path(__file__).resolve().parent.parent
FENCEPOST = Path(sys.executable).with_name("fencepost")
DEFAULT = "127.0.0.1:9092"
WEB = "127.0.0.1:8080"
TIMEOUT_MS = 900_000  # The longest that a broker allows by default.
TOPIC = "audit"
# From Produce v12 on, a broker adds the partition to the transaction; before, the client must do so, and this one does
# not. So the coordinator does not learn of the transaction.
ADDS_PARTITION, LEAVES_PARTITION_OUT = 12, 11


def port_problem(listen: str) -> str | None:
    """Why the broker cannot listen there, with what make takes; None if it can."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        return f"LISTEN={listen} is not an address\n\nhint: make dev LISTEN={DEFAULT}"
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host.strip("[]"), int(port)))
    except (OSError, OverflowError) as e:
        why = e.strerror if isinstance(e, OSError) else str(e)
        another = f"{host}:{int(port) + 1}" if int(port) < 65_535 else f"{host}:0"
        return f"cannot listen on {listen}: {why}\n\nhint: make dev LISTEN={another}"
    return None


def leave_open(client: KafkaClient, transactional_id: str, partition: int, produce_version: int) -> None:
    """Write one record to a partition of the topic, in a transaction that is not ended."""
    init = InitProducerIdRequest(transactional_id, TIMEOUT_MS)
    who = client.send(client.coordinator(transactional_id, TRANSACTION), init)
    assert who.error_code == errors.NONE, errors.name_of(who.error_code)
    now_ms = time.time_ns() // 1_000_000
    value = f"written by {transactional_id}, which never ended its transaction".encode()
    batch = encode_batch([(b"", value)], now_ms, who.producer_id, who.producer_epoch, 0, transactional=True)
    data = ProduceRequest.TopicProduceData(
        TOPIC, partition_data=[ProduceRequest.PartitionProduceData(partition, batch)]
    )
    request = ProduceRequest(transactional_id, -1, 30_000, [data])
    [written] = client.send(client.leader(TOPIC, partition), request, produce_version).responses[0].partition_responses
    assert written.error_code == errors.NONE, errors.name_of(written.error_code)


def start_workbench(address: str) -> str:
    """Start `fencepost web`, which ends when this process does. Returns its URL."""
    listen = WEB if port_problem(WEB) is None else "127.0.0.1:0"
    arguments = ("--bootstrap", address, "--listen", listen, "--allow-actions", "--until-stdin-closes")
    child = start_module("fencepost", "web", *arguments)
    assert child.stdout is not None
    return child.stdout.readline().strip().removeprefix("ready ")


def main() -> int:
    listen = sys.argv[1] if len(sys.argv) > 1 else DEFAULT
    if (problem := port_problem(listen)) is not None:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    usual = ROOT / (".dev-data" if listen == DEFAULT else f".dev-data-{listen.rpartition(':')[2]}")
    data = Path(sys.argv[2]) if len(sys.argv) > 2 else usual
    # Nothing was started so far. From here on, Ctrl-C and SIGTERM end what was.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    broker: subprocess.Popen[str] | None = None
    try:
        broker = start_broker(listen, data)
        assert broker.stdout is not None
        ready = broker.stdout.readline().strip()
        if ready:
            show_transactions(ready.removeprefix("ready "))
        return broker.wait()
    except KeyboardInterrupt:
        return 0 if broker is not None and ended(broker) == 0 else INTERRUPTED
    finally:
        if broker is not None:
            ended(broker)


def start_broker(listen: str, data: Path) -> subprocess.Popen[str]:
    command: list[str | Path] = [FENCEPOST, "broker", "--listen", listen, "--data", data, "--topic", f"{TOPIC}:2"]
    command += ["--set", "transaction.partition.verification.enable=false"]
    # A group of its own: Ctrl-C in a terminal is for this process, which then ends the broker.
    return start_whole(lambda: subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0))


def ended(broker: subprocess.Popen[str]) -> int:
    """Stop the broker, unless it has ended, and return its exit code. A second Ctrl-C does not disturb this."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    broker.terminate()
    return broker.wait()


def show_transactions(address: str) -> None:
    """Make the transactions, start the workbench, and print what there is to see."""
    # A group of its own, as for the broker.
    subprocess.run(
        [FENCEPOST, "demo", "brew", "--bootstrap", address], check=True, stderr=subprocess.DEVNULL, process_group=0
    )
    with KafkaClient({"bootstrap.servers": address}) as client:
        leave_open(client, "audit-open", 0, ADDS_PARTITION)
        leave_open(client, "audit-hanging", 1, LEAVES_PARTITION_OUT)
    workbench = start_workbench(address)
    print(
        f"\nThe workbench is at {workbench}\n"
        f"The broker is at {address}, with the transactions above. Two more are not ended:\n"
        f"  fencepost doctor --bootstrap {address}                   what is wrong, the worst first\n"
        f"  fencepost tail {TOPIC} --bootstrap {address}               their records, each with its outcome\n"
        f"  fencepost txn lso --bootstrap {address}                  who waits for which transaction\n"
        f"  fencepost txn explain audit-open --bootstrap {address}   one that is open\n"
        f"  fencepost txn hanging --bootstrap {address}              one that its coordinator does not know\n"
        "Ctrl-C stops the broker.",
        flush=True,
    )


if __name__ == "__main__":
    raise SystemExit(main())
