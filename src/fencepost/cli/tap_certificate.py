"""The certificate that a tap shows to clients: --certificate and --key, of every command whose tap may speak TLS."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable
from typing import Any

import click

from fencepost.cli.errors import WrongUse

Command = Callable[..., Any]


def certificate_options(command: Command) -> Command:
    """Adds --certificate and --key; the command gets `client_tls`, None without them."""

    @click.option("--certificate", metavar="FILE", help="Speak TLS with clients, with this certificate chain (PEM).")
    @click.option(
        "--key", metavar="FILE", help="The private key of --certificate (PEM), if it is in a file of its own."
    )
    @functools.wraps(command)
    def with_certificate(*args: Any, certificate: str | None, key: str | None, **given: Any) -> Any:
        return command(*args, client_tls=_client_tls(certificate, key), **given)

    return with_certificate


def _client_tls(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    if certificate is None:
        if key is not None:
            raise WrongUse("--key without --certificate", "name the certificate with --certificate FILE")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as e:
        raise WrongUse(f"--certificate {certificate} cannot be used: {e}", "both files have to be PEM") from None
    return context
