"""Clients made of Kafka's own Java library: `TxnClient.java` obeys orders, and `client.py` gives them.

The wheel has the source files only: `finding.py` compiles them once for a run, against the library of the user.
`TokenFile.java` logs in with the tokens that `client.py` keeps new.
"""
