"""What happened to one transactional id, step by step: for a drawing with a lane for each place where a step happens.

rounds.py     cuts the records of `__transaction_state` into rounds: one transaction each, with its owner and batches
records.py    what one record of the coordinator shows: who caused it, and by which request
written.py    the steps in the log of a partition
steps.py      the values: lanes, steps, and what a step can be opened to
timeline.py   puts them together
"""
