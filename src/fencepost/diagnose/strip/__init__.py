"""The log of a partition as a strip: a window of records with their outcomes, markers, and offsets that are gone.

`window.py` says what was read and decodes it, `strip.py` decides. `collect/strip.py` does the I/O.
"""
