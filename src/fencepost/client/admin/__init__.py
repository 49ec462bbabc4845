"""Questions that operators ask of a cluster, and the two orders that end a transaction from outside.

Each question goes to every broker that can answer it, in few requests per broker: questions about transactions to
their coordinators, questions about offsets and producers to the leaders of the partitions. If a broker cannot answer,
the answers of the others are returned with a line in `problems`, so that a cluster with one failed partition can still
be examined.
"""
