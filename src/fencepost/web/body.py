"""Reads the JSON that a request carries."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request


async def json_object(request: Request, at_most: int) -> dict[str, Any] | None:
    """The JSON object in the body; None: there is none, or it has more than `at_most` bytes, which are not read."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > at_most:
            return None
    try:
        found = json.loads(body)
    # A ValueError is also text that is not UTF-8, and a number of thousands of digits.
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
