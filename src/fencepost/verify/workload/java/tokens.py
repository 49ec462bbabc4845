"""Keeps a file with a token that is still valid for a while, for logins in Java."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from fencepost.client.failures import ClientError
from fencepost.client.oauthbearer import Token, TokenSource

HANDLER = "TokenFile"
_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
# Java logs in again when 80 % of a token's time has passed, and has to find another token then.
RENEWED_AT = 0.5
PAUSE_S = 1.0


def keep_tokens(source: TokenSource, file: Path) -> dict[str, str]:
    """Write the first token, and others for as long as the process lives. Returns the settings of the Java client.

    Raises ClientError if there is no token.
    """
    token = source.token()
    _write(token, file)
    threading.Thread(target=_renew, args=(source, file, token), daemon=True).start()
    return {"sasl.login.callback.handler.class": HANDLER, "sasl.jaas.config": f'{_MODULE} required tokenFile="{file}";'}


def _renew(source: TokenSource, file: Path, token: Token) -> None:
    while True:
        time.sleep(max((token.expires_at_s - time.time()) * RENEWED_AT, PAUSE_S))
        source.forget(token)
        try:
            token = source.token()
        except ClientError:
            continue
        _write(token, file)


def _write(token: Token, file: Path) -> None:
    """Java reads the old token or the new one, whole. Other users of the machine can read neither."""
    lines = [token.value, str(int(token.expires_at_s * 1000)), *(f"{n}={v}" for n, v in token.extensions.items())]
    new = file.with_suffix(".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
        opened.write("".join(f"{line}\n" for line in lines))
    new.replace(file)
