"""What a partition needs from storage, a log in memory, and rules about segments and times that all logs share."""
