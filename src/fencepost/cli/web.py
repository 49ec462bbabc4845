"""`fencepost web`: the workbench, a page for any Kafka cluster."""

from __future__ import annotations

import os
import secrets
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fencepost.cli.options import ClusterOptions, Unanswered, cluster_options
from fencepost.cli.streams import Failure, WrongUse, announce, say
from fencepost.interrupts import EndsAtOnce

if TYPE_CHECKING:
    from fencepost.tap.running import TapThread
    from fencepost.web.cluster import WatchedCluster

LEAST_TOKEN_CHARS = 16
TOKEN_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=")
INSTALL = "pip install 'fencepost[web]'"


@click.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8080",
    show_default=True,
    help="The address for browsers. Port 0 picks a free port. An address that other machines reach needs --token-file.",
)
@click.option("--allow-actions", is_flag=True, help="Let pages change the cluster: abort and fence transactions.")
@click.option(
    "--token-file",
    metavar="FILE",
    help="A file with the token that every request must have. A file that does not exist is made, with a new token.",
)
@click.option(
    "--tap",
    "tap_address",
    metavar="HOST:PORT",
    help="Also run a tap for clients at this address, as `fencepost tap` does. The page /tap shows what passes it.",
)
@click.option("--until-stdin-closes", is_flag=True, hidden=True)
@cluster_options
@EndsAtOnce()
def web(
    listen: str,
    allow_actions: bool,
    token_file: str | None,
    tap_address: str | None,
    until_stdin_closes: bool,
    cluster: ClusterOptions,
) -> None:
    """Show the transactions of any Kafka in a browser

    Serves the workbench: the cluster at a glance, each transactional id, partition and group, live. Every page also
    answers with JSON. Only reads, unless --allow-actions is given. Without a cluster it has Learn: the demos step by
    step and a playground, on brokers of their own. Prints `ready URL` on stdout when it listens; Ctrl-C or SIGTERM
    stops it.

    \b
    Example:
        fencepost web
        fencepost web --bootstrap localhost:9092
        fencepost web --bootstrap kafka-1:9092 --command-config client.properties --listen 127.0.0.1:8081
        fencepost web --bootstrap kafka-1:9092 --listen 0.0.0.0:8080 --token-file ./workbench-token
        fencepost web --bootstrap kafka-1:9092 --tap 127.0.0.1:9093
    """
    from fencepost.cli.broker import parse_address

    host, port = parse_address(listen)
    try:
        from fencepost.web.app import make_app
        from fencepost.web.serving import host_names, is_loopback, serve
        from fencepost.web.serving import listen as listen_on
    except ModuleNotFoundError as e:
        raise Failure(f"not installed: {e.name}", INSTALL) from None
    from fencepost.web.pages import PAGES
    from fencepost.web.pages.tap import PAGE as TAP_PAGE
    from fencepost.web.watch import Watch

    if token_file is None and not is_loopback(host):
        raise WrongUse(
            f"other machines reach {listen}, and there is no token",
            "name a file for one with --token-file FILE, or listen on 127.0.0.1",
        )
    token = read_token(Path(token_file)) if token_file is not None else None
    watch = Watch(_cluster(cluster), lambda text: say(f"error: {text}"))
    try:
        at = listen_on(host, port)
    except OSError as e:
        raise Failure(f"cannot listen on {listen}: {e.strerror or e}", "choose another address with --listen") from None
    tap = None if tap_address is None else _start_tap(tap_address, cluster, watch.cluster)
    app = make_app(
        watch,
        pages=PAGES if tap is None else (*PAGES, TAP_PAGE),
        allow_actions=allow_actions,
        token=token,
        # A token proves more than a name.
        hosts=host_names(host) if token is None else None,
        cookie=f"fencepost-{at.port}",
    )
    if until_stdin_closes:
        threading.Thread(target=_end_with_stdin, daemon=True).start()

    def tell_addresses() -> None:
        announce(f"ready {at.url}")
        if tap is not None:
            say(f"the tap is at {tap.tap.address}")

    try:
        serve(app, at, tell_addresses)
    finally:
        at.sock.close()
        if tap is not None:
            tap.stop()


def _start_tap(address: str, options: ClusterOptions, cluster: WatchedCluster) -> TapThread:
    from fencepost.cli.broker import parse_address
    from fencepost.client.settings import parse_settings
    from fencepost.tap.proxy import PortUnusable, Proxy, Unreached
    from fencepost.tap.running import TapThread
    from fencepost.web.pages.tap import Wire

    wire = cluster.own(Wire)
    tap = TapThread(
        Proxy(
            parse_settings(options.settings()),
            parse_address(address),
            show=wire.add,
            say=lambda text: say(f"warning: {text}"),
        )
    )
    try:
        tap.start()
    except PortUnusable as e:
        raise Failure(str(e), "choose another address with --tap") from None
    except Unreached as e:
        raise Unanswered(str(e), "a tap needs a cluster that answers: is --bootstrap right?") from None
    wire.address = tap.tap.address
    return tap


def _end_with_stdin() -> None:
    """The parent process has the other end of stdin, and has ended when it closes."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _cluster(options: ClusterOptions) -> WatchedCluster:
    """The cluster of the options; without any, there is none, and only the pages that need none are served."""
    from fencepost.web.cluster import WatchedCluster
    from fencepost.web.pages import PAGES

    if not options.is_given and not all(page.needs_cluster for page in PAGES):
        return WatchedCluster(None)
    with options.connect() as client:
        pass  # Only the settings are checked: the cluster may come later.
    name = ",".join(f"{host}:{port}" for host, port in client.settings.bootstrap)
    return WatchedCluster(client.another, name, tuple(options.arguments()))


def read_token(file: Path) -> str:
    """The token in a file, which is made if it does not exist."""
    try:
        if not file.exists():
            file.touch(mode=0o600, exist_ok=False)
            file.write_text(secrets.token_urlsafe(32) + "\n")
            say(f"made a token in {file}")
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not text"
        raise WrongUse(f"cannot use the token in {file}: {reason}", "--token-file names a file of one line") from None
    if len(token) < LEAST_TOKEN_CHARS or not TOKEN_CHARS.issuperset(token):
        raise WrongUse(
            f"the token in {file} cannot be used: it has {len(token)} characters",
            f"at least {LEAST_TOKEN_CHARS} letters, digits and -._~+/=; delete the file, and one is made",
        )
    return token
