"""Starts `fencepost web` as a user does, and asks it."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.command_line import start_fencepost

TIMEOUT_S = 60


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class LiveEvent(NamedTuple):
    name: str
    document: Any


class WebServer(NamedTuple):
    process: subprocess.Popen[str]
    url: str

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    def request(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: str | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection(self.host, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, body, {**(headers or {})})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read().decode())
        finally:
            connection.close()

    def get(self, path: str, accept: str = "application/json", **headers: str) -> Answer:
        """Header names are written with `_` for `-`."""
        return self.request("GET", path, {"Accept": accept, **{k.replace("_", "-"): v for k, v in headers.items()}})

    def document(self, path: str) -> Any:
        answer = self.get(path)
        assert answer.status == 200, answer
        return answer.document

    def post(self, path: str, given: object, **headers: str) -> Answer:
        sent = {"Content-Type": "application/json", "X-Fencepost": "1"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request("POST", path, sent, json.dumps(given))

    @contextmanager
    def events(self, path: str) -> Iterator[Iterator[LiveEvent]]:
        """The events of an address, as they come."""
        connection = http.client.HTTPConnection(self.host, timeout=TIMEOUT_S)
        try:
            connection.request("GET", path, headers={"Accept": "text/event-stream"})
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            yield _events(answer)
        finally:
            connection.close()


def _events(answer: http.client.HTTPResponse) -> Iterator[LiveEvent]:
    name, data = "", ""
    while line := answer.readline().decode():
        field, _, value = line.rstrip("\r\n").partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            data += value
        elif not field and data:
            yield LiveEvent(name, json.loads(data))
            name, data = "", ""


@contextmanager
def web_server(bootstrap_servers: str | None, *more: str, listen: str = "127.0.0.1:0") -> Iterator[WebServer]:
    cluster = ("--bootstrap", bootstrap_servers) if bootstrap_servers is not None else ()
    process = start_fencepost("web", "--listen", listen, *cluster, *more)
    try:
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        assert ready[:1] == ["ready"], process.communicate(timeout=TIMEOUT_S)
        yield WebServer(process, ready[1])
    finally:
        process.kill()
        process.communicate()
