"""`fencepost exporter`: metrics for Prometheus about the transactions of any Kafka cluster."""

from __future__ import annotations

import signal

import click

from fencepost.cli.options import LEAST_PAUSE_MS, ClusterOptions, Duration, cluster_options
from fencepost.cli.streams import Failure, announce, say


@click.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:9405",
    show_default=True,
    help="The address for Prometheus. Port 0 picks a free port.",
)
@click.option(
    "--every",
    "every_ms",
    type=Duration(1, LEAST_PAUSE_MS),
    default="15s",
    show_default=True,
    help="How often to collect from the cluster. Scrapes are answered with the last result.",
)
@cluster_options
def exporter(listen: str, every_ms: int, cluster: ClusterOptions) -> None:
    """Serve metrics for Prometheus about the transactions of any Kafka

    Collects metrics from the cluster at an interval and serves them at http://HOST:PORT/metrics: for each partition how
    many offsets readers wait for and for how long, transactions by state, hanging transactions, the oldest one,
    fencings, and the load of each coordinator. /health has the state of the exporter. A slow cluster never delays a
    scrape. Prints `ready URL` on stdout when it listens; Ctrl-C or SIGTERM stops it.

    \b
    Example:
        fencepost exporter --bootstrap kafka-1:9092,kafka-2:9092
        fencepost exporter --listen 0.0.0.0:9405 --every 30s --command-config client.properties
    """
    from fencepost.cli.broker import parse_address
    from fencepost.diagnose.exporter.collecting import ClusterWatch, ExporterServer

    host, port = parse_address(listen)
    with cluster.connect() as client:
        pass  # Only the settings are checked: the client connects when it is asked, and the cluster may come later.
    watch = ClusterWatch(client, every_ms / 1000, _complain)
    try:
        server = ExporterServer(host, port, watch)
    except OSError as e:
        raise Failure(f"cannot listen on {listen}: {e.strerror or e}", "choose another address with --listen") from None
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        watch.start()
        shown = f"[{host}]" if ":" in host else host
        announce(f"ready http://{shown}:{server.server_address[1]}/metrics")
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, previous)
        server.server_close()
        watch.stop()


def _complain(text: str) -> None:
    say(f"warning: {text}")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
