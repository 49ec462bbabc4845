"""A few lines of HTTP: GET /metrics and GET /health. Every answer comes from memory, at once."""

from __future__ import annotations

import json
import socket
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import CollectorRegistry

from fencepost.diagnose.exporter.collecting import ClusterWatch

PATIENCE_S = 10.0
TEXT = "text/plain; charset=utf-8"
INDEX = b"fencepost exporter: metrics for Prometheus are at /metrics, the state of the exporter is at /health\n"


class ExporterServer(ThreadingHTTPServer):
    """Listens as soon as it is made; raises OSError if the address is taken."""

    daemon_threads = True

    def __init__(self, host: str, port: int, watch: ClusterWatch) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.watch = watch
        self.registry = CollectorRegistry()
        self.registry.register(watch)
        super().__init__((host, port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: ExporterServer
    timeout = PATIENCE_S

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        status, kind = HTTPStatus.OK, TEXT
        if path == "/metrics":
            kind, body = CONTENT_TYPE_LATEST, generate_latest(self.server.registry)
        elif path == "/health":
            is_well, document = self.server.watch.health()
            status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
            kind, body = "application/json", json.dumps(document).encode() + b"\n"
        elif path == "/":
            body = INDEX
        else:
            status, body = HTTPStatus.NOT_FOUND, INDEX
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def version_string(self) -> str:
        return "fencepost"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """A line per scrape would be noise."""
