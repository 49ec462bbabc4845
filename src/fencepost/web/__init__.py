"""The workbench: `fencepost web` shows the transactions of any Kafka cluster in a browser.

`app.py` makes the server from the pages of `pages/`, `guard.py` decides which requests it takes, `watch.py` repeats
questions while browsers follow them, `cluster.py` has the connections to the cluster. `static/` is the browser's side.
Only `serving.py`, `app.py` and `guard.py` import the packages of the extra `web`.
"""
