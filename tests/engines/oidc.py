"""An OIDC provider on loopback, and the key that it signs its tokens with.

    with OidcProvider(key) as provider:
        client = KafkaClient({"sasl.oauthbearer.token.endpoint.url": provider.url, ...})

Apache Kafka checks the tokens with the public part of the key, `SigningKey.jwks`.
"""

from __future__ import annotations

import base64
import json
import threading
import urllib.parse
import uuid
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.certificates import Certified
from tests.tokens import Provider

CLIENT_ID, CLIENT_SECRET = "sink-of-a-test", "the secret of a test"
SCOPE, AUDIENCE, ISSUER = "kafka", "cluster-of-a-test", "https://issuer.example"
KEY_ID = "key of a test"


class SigningKey:
    """Signs the tokens of one client."""

    def __init__(self) -> None:
        self._provider = Provider(KEY_ID)

    @property
    def jwks(self) -> str:
        """The public part, as a JSON web key set."""
        return self._provider.key_set().decode()

    def token(self, lifetime_s: float = 3600, **claims: object) -> str:
        """A claim that is None is left out."""
        return self._provider.token(CLIENT_ID, lifetime_s, **{"iss": ISSUER, "aud": AUDIENCE, "scope": SCOPE, **claims})


class OidcProvider:
    """Serves tokens to one client, over HTTPS if there is a certificate.

    `answer` replaces the next answers, if it is set: a status and a body.
    """

    def __init__(self, key: SigningKey, lifetime_s: float = 3600, certificate: Certified | None = None) -> None:
        self.key = key
        self.lifetime_s = lifetime_s
        self.answer: tuple[int, bytes] | None = None
        self._path = uuid.uuid4().hex
        self.tokens: list[str] = []  # Those that it has given out.
        self.forms: list[Mapping[str, str]] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, content = provider._reply(self.headers.get("Authorization", ""), body.decode())
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._is_https = certificate is not None
        if certificate is not None:
            context = certificate.server_context()
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        # Equal logins share their tokens, so each provider has a path of its own: ports are used again.
        scheme = "https" if self._is_https else "http"
        return f"{scheme}://127.0.0.1:{self._server.server_port}/{self._path}/token"

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a client, besides bootstrap.servers and security.protocol."""
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.url,
            "sasl.oauthbearer.client.id": CLIENT_ID,
            "sasl.oauthbearer.client.secret": CLIENT_SECRET,
            "sasl.oauthbearer.scope": SCOPE,
        }

    def __enter__(self) -> OidcProvider:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _reply(self, authorization: str, body: str) -> tuple[int, bytes]:
        self.forms.append(dict(urllib.parse.parse_qsl(body)))
        if self.answer is not None:
            return self.answer
        expected = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if authorization != f"Basic {expected}":
            return 401, b'{"error": "invalid_client", "error_description": "no such client, or another secret"}'
        # Valid for longer than it says: a broker that takes its time must not find the token of a short test expired.
        self.tokens.append(self.key.token(self.lifetime_s + 60))
        answer = {"access_token": self.tokens[-1], "token_type": "Bearer", "expires_in": self.lifetime_s}
        return 200, json.dumps(answer).encode()
