"""Requests in, replies out: the cluster, its settings and topics, and a handler for each API. Pure."""
