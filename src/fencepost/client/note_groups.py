"""The groups in which the Spark sink keeps notes about its transactions, as offsets. No consumer reads with them."""

from __future__ import annotations

COMMIT_NOTES = "fencepost-marker-"
TOKEN_NOTES = "fencepost-token-"


def is_note_group(group_id: str) -> bool:
    return group_id.startswith((COMMIT_NOTES, TOKEN_NOTES))
