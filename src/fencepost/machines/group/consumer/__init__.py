"""The consumer protocol (KIP-848): heartbeats, assignment by the broker, conversion of classic groups."""
