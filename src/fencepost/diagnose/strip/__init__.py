"""The log of a partition as a strip: a window of records with their outcomes, markers, and offsets that are gone.

`window.py` says what was read, `strip.py` decides, `decoded.py` decodes, `contents.py` shows bytes. `collect/strip.py` does the I/O.
"""
