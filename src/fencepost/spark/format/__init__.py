"""`format("fencepost")` of write and writeStream: Spark's JVM hands options and rows to this process, which runs the
sink.

session.py        adds the jar to a session, and connects the session with this process
python_side.py    the objects that Spark's JVM calls
options.py        the options of a write as settings of a sink. Pure
"""
