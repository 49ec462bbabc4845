"""The groups and offsets of one partition of `__consumer_offsets`: state, records and decisions."""
