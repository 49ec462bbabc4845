"""The words for faults: what a fault does, which requests it strikes, how often, and the replies that carry an error.

Pure. The broker (`server/faults.py`) and the tap (`tap/`) apply faults to connections; `testing/faults.py` has the
calls for tests.
"""
