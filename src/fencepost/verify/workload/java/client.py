"""A producer and a source made of Kafka's Java library, which runs in a process of its own and takes orders."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fencepost.client.failures import ClientError
from fencepost.client.oauthbearer import Token, TokenSource
from fencepost.verify.history import CLIENT_PATIENCE_MS, Acked, Init
from fencepost.verify.workload.logins import take_tokens
from fencepost.verify.workload.notes import Notes, now
from fencepost.verify.workload.producer import Abortable, Broken, InputPlace, key_of

TXN_TIMEOUT_MS = 15_000
BLOCK_MS = 15_000
PATIENCE_S = 20.0
POLL_RECORDS = 20
COMMON = {
    "request.timeout.ms": CLIENT_PATIENCE_MS,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
}
PRODUCER = COMMON | {
    "transaction.timeout.ms": TXN_TIMEOUT_MS,
    "delivery.timeout.ms": BLOCK_MS,
    "max.block.ms": BLOCK_MS,
    "linger.ms": 0,
}
CONSUMER = COMMON | {
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "default.api.timeout.ms": BLOCK_MS,
    "max.poll.records": POLL_RECORDS,
    "fetch.max.wait.ms": 50,
    "heartbeat.interval.ms": 500,
    "session.timeout.ms": 6000,  # For this long, a killed client delays the others.
}


class Later(Abortable):
    """No answer came in time: some orders may be given again."""


FAILURES: dict[str, type[Abortable | Broken]] = {"later": Later, "refused": Abortable, "broken": Broken}


class JavaProgram:
    """The process. It is in the process group of this one, so what stops or kills the group concerns both."""

    def __init__(self, command: list[str], notes: Notes) -> None:
        self._notes = notes
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        [self.library_version] = self._answer()

    def order(self, word: str, *words: object) -> list[str]:
        """What was asked for. Raises Abortable and Broken."""
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(quote(str(each), safe="") for each in (word, *words)) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def patient_order(self, word: str, *words: object) -> None:
        """Give it again until it is answered, or until the time is up. Raises Abortable and Broken."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.order(word, *words)
            except Later as e:
                if time.monotonic() > deadline:
                    raise Broken(e.error) from None
            else:
                return

    def _answer(self) -> list[str]:
        """The answer to an order; notes what was acknowledged until then."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, *words = line.rstrip("\n").split("\t")
            if kind == "acked":
                value, topic, partition, offset = words
                self._notes.note(Acked(now(), self._notes.by, value, topic, int(partition), int(offset)))
            elif kind in FAILURES:
                raise FAILURES[kind](*words)
            else:
                return words
        raise RuntimeError(f"Java ended with exit code {self._process.wait()}")


class JavaProducer:
    """`version` is the transaction version of the cluster. The library has version 2 since 4.0."""

    def __init__(
        self, program: JavaProgram, notes: Notes, settings: Mapping[str, Any], transactional_id: str, version: int
    ) -> None:
        self.program = program
        self._notes = notes
        self._transactional_id = transactional_id
        self._version = version if int(program.library_version.partition(".")[0]) >= 4 else 1
        own = {"transactional.id": transactional_id}
        program.order("producer", *_pairs(PRODUCER | dict(settings) | own))

    def init(self) -> None:
        while True:
            try:
                self.program.order("init")
            except Later:
                continue
            except Abortable as e:
                raise Broken(e.error) from None
            self._notes.note(Init(now(), self._notes.by, self._transactional_id, version=self._version))
            return

    def begin(self) -> None:
        self.program.order("begin")

    def send(self, topic: str, partition: int, value: str) -> None:
        self.program.order("send", topic, partition, key_of(value), value)

    def flush(self) -> None:
        self.program.order("flush")

    def commit(self) -> None:
        self.program.patient_order("commit")

    def abort(self) -> None:
        self.program.patient_order("abort")

    def close(self) -> None:
        with suppress(Abortable, Broken):
            self.program.order("close-producer")


class JavaSource:
    def __init__(self, program: JavaProgram, settings: Mapping[str, Any], group_id: str, topic: str) -> None:
        self.group_id = group_id
        self._program = program
        program.order("consumer", topic, *_pairs(CONSUMER | dict(settings) | {"group.id": group_id}))

    def poll(self, most: int) -> list[InputPlace]:
        try:
            found = self._program.order("poll", most)
        except Later:
            return []
        places = zip(found[::3], found[1::3], found[2::3], strict=True)
        return [InputPlace(topic, int(partition), int(offset)) for topic, partition, offset in places]

    def send_offsets(self, offsets: list[InputPlace]) -> None:
        self._program.patient_order("offsets", *(word for place in offsets for word in place))

    def rewind(self) -> None:
        self._program.patient_order("rewind")

    def close(self) -> None:
        with suppress(Abortable, Broken):
            self._program.order("close-consumer")


def library_settings(settings: Mapping[str, Any], token_file: Path) -> dict[str, Any]:
    """The settings of the Java library; the file has the tokens, if the login needs any."""
    found, source = take_tokens(settings)
    return found | (keep_tokens(source, token_file) if source is not None else {})


def _pairs(settings: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]


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
