"""The table of errors by code.

It has a row for every code that a transactional producer, or the consumer beside it, can receive; `lookup.py` searches
it. `protocol/errors.py` says which codes are retriable. One test compares the Java names with the classes of Apache
Kafka, another the names of librdkafka with the library.
"""

from __future__ import annotations

from fencepost.diagnose.errors.entry import ErrorEntry
from fencepost.diagnose.errors.kafka_codes import KAFKA_CODES
from fencepost.diagnose.errors.librdkafka_codes import LIBRDKAFKA_CODES

_ROWS = (*KAFKA_CODES, *LIBRDKAFKA_CODES)
TABLE: dict[int, ErrorEntry] = {entry.code: entry for entry in _ROWS}
assert len(TABLE) == len(_ROWS), "a code is in the table twice"
