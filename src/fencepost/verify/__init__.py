"""Looks for what exactly-once forbids, on any Kafka cluster and in any pipeline.

`history.py` is a run as its clients saw it, and all that the checkers know.
"""
