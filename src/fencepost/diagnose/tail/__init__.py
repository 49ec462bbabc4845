"""The records of a topic with the outcome of their transactions: `fencepost tail`.

`outcomes.py` decides, `documents.py` defines the documents and formats them. `collect/tail.py` does the I/O.
"""
