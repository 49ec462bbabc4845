"""A data folder with a document, so that a start compares the folder with its own records."""

from __future__ import annotations

from typing import Any

from fencepost.server.storage import DataFolder

TOPIC_ID = bytes(range(16))
LOGS = ("orders-0", "t-0")


class SurveyedFolder(DataFolder):
    def __init__(self, path: str, topic_id: bytes = TOPIC_ID, **options: Any) -> None:
        super().__init__(path, logs_in=lambda document: [(name, topic_id) for name in LOGS], **options)
        if self.load_metadata() is None:
            self.save_metadata(b'{"a": 1}')
