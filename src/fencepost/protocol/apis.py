"""Kafka's APIs by their keys, as the definitions have them: name, request, response."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources

from fencepost.protocol import messages
from fencepost.protocol.schema import Malformed, Message, read_uvarint, skip_tags

API_VERSIONS = 18
_REQUEST = re.compile(r"^(\w+)Request key (\d+) ", re.MULTILINE)


@cache
def api_names() -> Mapping[int, str]:
    """The names of all APIs that have a definition, in the order of their keys."""
    folder = resources.files("fencepost.protocol") / "definitions"
    found = {int(key): name for file in folder.iterdir() for name, key in _REQUEST.findall(file.read_text())}
    return dict(sorted(found.items()))


def request_class(api_key: int) -> type[Message]:
    found: type[Message] = getattr(messages, f"{api_names()[api_key]}Request")
    return found


def response_class(api_key: int) -> type[Message]:
    found: type[Message] = getattr(messages, f"{api_names()[api_key]}Response")
    return found


def knows(api_key: int, version: int) -> bool:
    """Whether there is a definition of this version."""
    return api_key in api_names() and version in request_class(api_key).definition.versions


def body_of_request(frame: bytes | memoryview, api_key: int, version: int) -> int:
    """Where the body of a request begins. Raises Malformed."""
    if len(frame) < 10:
        raise Malformed(f"a request of {len(frame)} bytes")
    pos = 10 + max(int.from_bytes(frame[8:10], "big", signed=True), 0)
    return _after_tags(frame, pos) if request_class(api_key).is_flexible(version) else pos


def body_of_reply(frame: bytes | memoryview, api_key: int, version: int) -> int:
    """Where the body of a reply begins, after the correlation id. Raises Malformed."""
    return _after_tags(frame, 4) if has_flexible_reply_header(api_key, version) else 4


def has_flexible_reply_header(api_key: int, version: int) -> bool:
    # Kafka: ApiVersions is always answered with the old header, because the client does not know the versions yet.
    return api_key != API_VERSIONS and response_class(api_key).is_flexible(version)


def _after_tags(frame: bytes | memoryview, pos: int) -> int:
    try:
        count, pos = read_uvarint(frame, pos)
        return skip_tags(frame, pos, count)
    except IndexError:
        raise Malformed(f"a message of {len(frame)} bytes ends within its header") from None
