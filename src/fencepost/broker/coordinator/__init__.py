"""The transaction and the group coordinator, on one runtime that appends, applies and loads their records."""
