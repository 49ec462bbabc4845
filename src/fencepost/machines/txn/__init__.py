"""One transactional id: its states, the decision for each request, and its record in `__transaction_state`."""
