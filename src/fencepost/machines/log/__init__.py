"""The interface between a partition and storage, a log in memory, and rules about segments and times for all logs."""
