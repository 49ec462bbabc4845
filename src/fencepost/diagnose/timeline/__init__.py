"""What happened to one transactional id, step by step: for a drawing with a lane for each place where a step happens.

rounds.py     cuts the records of `__transaction_state` into rounds: one transaction each
batches.py    finds the record batches and the marker of a round in the log of a partition
owners.py     the producers that registered the id, one after the other
records.py    what one record of the coordinator shows: who caused it, and by which request
requests.py   finds the request behind a step, if the brokers remember requests
sources.py    the record, batch, marker or request that a step can be opened to
written.py    the steps in the log of a partition
steps.py      the values: lanes and steps
timeline.py   puts them together
"""
