"""The tap: a proxy between any Kafka clients and any Kafka cluster, which shows transactions and causes faults.

It passes all bytes on as they are, except for the addresses of brokers, which become addresses of the tap.

    proxy.py        the listeners, and which address belongs to which broker
    link.py         one connection of a client, and the connection to the broker behind it
    sides.py        its two ends: how they read, wait and write
    frames.py       bytes to frames; rewriting.py addresses in replies
    decoding.py     frames to events; text.py events to lines
    running.py      a tap until a signal ends it
"""
