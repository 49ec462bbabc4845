"""Explains one transactional id: what happened, why, which readers wait for it, what happens next, what to do.

Each statement is a `Finding` with a label; the commands print one per line. `ongoing.py` and `closed.py` make the
findings of a state; `explanation.py` adds those that do not depend on the state.
"""
