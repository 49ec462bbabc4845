"""`fencepost doctor`: what is wrong with the transactions of a cluster, what may go wrong, and which command helps.

`snapshot.py` has what was asked of the cluster. Each `diagnose_*` function looks for one kind of trouble and returns
findings; `report.py` calls all of them and ranks the result. All of it is pure; `collect/doctor.py` asks.
"""
