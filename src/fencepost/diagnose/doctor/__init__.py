"""`fencepost doctor`: problems and risks in the transactions of a cluster, each with the command that helps.

Each `diagnose_*` function looks for one kind of problem in the cluster's answers (`findings.py`) and returns findings;
`report.py` calls all of these functions and ranks the result. This package is pure; `collect/doctor.py` does the I/O.
"""
