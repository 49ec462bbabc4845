"""Faults while a run goes on: `schedule.py` says which and when, from a seed; `carrying_out.py` causes them."""
