"""The clients of a run, each in a process of its own, which may be killed, and what each of them notes.

`plan.py` says which topics and clients a run has. `writer.py` decides what a client does, in terms of a
producer and a source: `librdkafka.py` and `own.py` have one of each. `reader.py` follows the topics, `last_reads.py`
reads everything when all is at rest. `process.py` is a client's process as its parent sees it, `child.py` its inside.
"""
