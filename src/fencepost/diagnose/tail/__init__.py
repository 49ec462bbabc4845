"""The records of a topic with the outcome of their transactions: `fencepost tail`.

`outcomes.py` decides, `documents.py` has what is printed, `text.py` makes lines of it. `collect/tail.py` reads.
"""
