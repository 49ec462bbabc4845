"""Explains one transactional id: what happened, why, which readers wait for it, what happens next, what to do.

Each statement is a `Finding` with a label; the commands print one per line. One module per state makes the findings;
`suspicions.py` adds those that do not depend on the state.
"""
