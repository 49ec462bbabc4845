"""The public keys with which tokens are checked: a key set (JWKS) in a file, or at an address.

A file is read again when it has changed. An address is asked in a thread of its own: at the start, at an interval, and
when a token names a key that is not known. While no key set has arrived, tokens are refused.
"""

from __future__ import annotations

import ipaddress
import os
import threading
import urllib.request
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from fencepost.broker.config import BadSetting
from fencepost.machines.auth.oauthbearer import TokenKey, parse_key_set

if TYPE_CHECKING:
    import jwt

SETTING = "sasl.oauthbearer.jwks.endpoint.url"
MAX_BYTES = 1 << 20
TIMEOUT_S = 10.0
# A file is looked at this often at most.
LOOK_S = 1.0
# Tokens with unknown keys have the address asked again, this often at most.
LEAST_INTERVAL_S = 5.0


class KeySet(Protocol):
    def find(self, key_id: str | None) -> list[jwt.PyJWK]:
        """The keys with this id; all keys if a token names none."""
        ...


def open_key_set(url: str, refresh_s: float, backoff_s: tuple[float, float], report: Callable[[str], None]) -> KeySet:
    """Raises BadSetting. `backoff_s`: the shortest and the longest pause after a failed attempt."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return KeyFile(unquote(parts.path), report)
    if parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts.hostname)):
        return KeyAddress(url, refresh_s, backoff_s, report)
    if not url:
        raise BadSetting(
            f"sasl.enabled.mechanisms has OAUTHBEARER, but {SETTING} is empty\n\n"
            "hint: it names the public keys (JWKS) of the tokens' provider, for example file:///etc/fencepost/jwks.json"
        )
    raise BadSetting(
        f"{SETTING}={url} cannot be used\n\n"
        "hint: write file:///PATH or https://HOST/PATH; http:// is accepted for loopback only, because keys that come "
        "without TLS prove nothing"
    )


def _is_loopback(host: str | None) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def _matching(keys: list[TokenKey], key_id: str | None) -> list[jwt.PyJWK]:
    return [key.key for key in keys if key_id is None or key.key_id == key_id]


class KeyFile:
    def __init__(self, path: str, report: Callable[[str], None]) -> None:
        """Raises BadSetting if the file has no keys."""
        self._path = path
        self._report = report
        self._next_look = monotonic() + LOOK_S
        self._seen = self._look()
        try:
            self._keys = self._read()
        except (OSError, ValueError) as e:
            raise BadSetting(
                f"{SETTING}=file://{path} cannot be used: {_reason(e)}\n\n"
                "hint: the file has the public keys of the tokens' provider, as a JWKS"
            ) from None

    def find(self, key_id: str | None) -> list[jwt.PyJWK]:
        now = monotonic()
        if now >= self._next_look:
            self._next_look = now + LOOK_S
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                try:
                    self._keys = self._read()
                except (OSError, ValueError) as e:
                    self._report(f"the keys in {self._path} have changed, and the old ones stay in use: {_reason(e)}")
        return _matching(self._keys, key_id)

    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> list[TokenKey]:
        with open(self._path, "rb") as file:
            return parse_key_set(file.read(MAX_BYTES))


class KeyAddress:
    def __init__(
        self, url: str, refresh_s: float, backoff_s: tuple[float, float], report: Callable[[str], None]
    ) -> None:
        self._url = url
        self._refresh_s = refresh_s
        self._backoff_s = backoff_s
        self._report = report
        self._keys: list[TokenKey] = []  # Replaced as a whole, by the thread.
        self._is_wanted = threading.Event()
        self._asked = 0.0
        threading.Thread(target=self._run, name="fencepost-jwks", daemon=True).start()

    def find(self, key_id: str | None) -> list[jwt.PyJWK]:
        found = _matching(self._keys, key_id)
        if not found and monotonic() - self._asked > LEAST_INTERVAL_S:
            # Kafka: this login fails. The client tries again, and the new key may have arrived by then.
            self._is_wanted.set()
        return found

    def _run(self) -> None:
        shortest_s, longest_s = self._backoff_s
        pause_s = shortest_s
        while True:
            self._is_wanted.clear()
            try:
                self._keys = self._fetch()
                pause_s = shortest_s
                self._is_wanted.wait(self._refresh_s)
            except Exception as e:  # Also answers that are no HTTP. The thread must go on, or no new key ever arrives.
                self._report(f"the keys at {self._url} cannot be read: {_reason(e)}")
                self._is_wanted.wait(pause_s)
                pause_s = min(pause_s * 2, longest_s)

    def _fetch(self) -> list[TokenKey]:
        self._asked = monotonic()
        with urllib.request.urlopen(self._url, timeout=TIMEOUT_S) as answer:
            return parse_key_set(answer.read(MAX_BYTES))


def _reason(error: Exception) -> str:
    return str(error.strerror) if isinstance(error, OSError) and error.strerror else str(error)
