"""The client's half of the protocol, without I/O: encodes requests, decodes replies, chooses versions.

A `Session` belongs to one connection. It uses the highest version that both sides know, below a limit that the caller
may set (a transaction uses TV1 or TV2, never both).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from fencepost.client.failures import ClientError
from fencepost.protocol import errors, messages
from fencepost.protocol.messages import ApiVersionsResponse
from fencepost.protocol.schema import Malformed, Message, read_uvarint, skip_tags

_HEADER = struct.Struct(">hhih")
_LENGTH = struct.Struct(">i")
API_VERSIONS = 18
_UNSUPPORTED = errors.UNSUPPORTED_VERSION.to_bytes(2, "big")
TRANSACTION_VERSION = "transaction.version"


class Unsupported(ClientError):
    """The broker does not serve an API, or only versions that this client does not speak."""


class Sent(NamedTuple):
    """What is needed to decode the reply to a request."""

    correlation_id: int
    response_class: type[Message]
    version: int


class Session:
    def __init__(self, client_id: str) -> None:
        self._client_id = client_id.encode()
        self._next_correlation_id = 0
        self._ranges: dict[int, tuple[int, int]] = {API_VERSIONS: (0, 3)}
        self.features: dict[str, int] = {}  # Finalized.
        self.supported_features: dict[str, int] = {}  # The highest level of each.

    def learn(self, response: ApiVersionsResponse) -> None:
        """Remember the versions and features of the broker."""
        self._ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        self.supported_features = {feature.name: feature.max_version for feature in response.supported_features}
        self.features = {feature.name: feature.max_version_level for feature in response.finalized_features}

    def max_version(self, api_key: int) -> int:
        """The highest version that the broker serves; -1 if it does not serve the API."""
        return self._ranges.get(api_key, (0, -1))[1]

    def version_for(self, request_class: type[Message], at_most: int | None = None) -> int:
        ours = request_class.definition.versions
        first, last = self._ranges.get(request_class.definition.api_key, (0, -1))
        version = min(last, ours.stop - 1, ours.stop - 1 if at_most is None else at_most)
        if last < 0:
            raise Unsupported(f"the broker does not serve {request_class.__name__}")
        if version < max(first, ours.start):
            raise Unsupported(
                f"{request_class.__name__}: the broker serves v{first} to v{last}, "
                f"this client speaks v{ours.start} to v{ours.stop - 1}"
                + (f", here at most v{at_most}" if at_most else "")
            )
        return version

    def encode(self, request: Message, version: int) -> tuple[bytes, Sent]:
        """The frame of a request, with its length, and what is needed for the reply."""
        self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        definition = request.definition
        head = _HEADER.pack(definition.api_key, version, self._next_correlation_id, len(self._client_id))
        out = bytearray(4) + head + self._client_id
        if request.is_flexible(version):
            out += b"\0"
        request.encode_into(out, version)
        _LENGTH.pack_into(out, 0, len(out) - 4)
        response_class = getattr(messages, definition.name.removesuffix("Request") + "Response")
        return bytes(out), Sent(self._next_correlation_id, response_class, version)

    def decode(self, frame: bytes, sent: Sent) -> Message:
        """The reply to `sent`, from a frame without its length."""
        if len(frame) < 4:
            raise Malformed(f"a reply of {len(frame)} bytes")
        (correlation_id,) = _LENGTH.unpack_from(frame)
        if correlation_id != sent.correlation_id:
            raise Malformed(f"the reply is to request {correlation_id}, expected {sent.correlation_id}")
        pos, version = 4, sent.version
        # Kafka: ApiVersions always has the old reply header, and a broker that does not know the version answers in v0.
        if sent.response_class.definition.api_key == API_VERSIONS:
            if frame[4:6] == _UNSUPPORTED:
                version = 0
        elif sent.response_class.is_flexible(version):
            try:
                count, pos = read_uvarint(frame, pos)
                pos = skip_tags(frame, pos, count)
            except IndexError:
                raise Malformed(f"a reply of {len(frame)} bytes ends within its header") from None
        return sent.response_class.decode(frame, pos, version)[0]
