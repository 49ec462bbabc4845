"""State machines: transactions, partitions, groups, logs and timers. Pure: the time is an argument."""
