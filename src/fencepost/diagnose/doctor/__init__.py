"""`fencepost doctor`: problems and risks in the transactions of a cluster, each with the command that helps.

`snapshot.py` has the cluster's answers. Each `diagnose_*` function looks for one kind of problem and returns findings;
`report.py` calls all of these functions and ranks the result. This package is pure; `collect/doctor.py` does the I/O.
"""
