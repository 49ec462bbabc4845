"""Runs any program that makes outputs of inputs, disturbs it, and notes what came out: `fencepost verify pipeline`.

`plan.py` has what is fed and what is disturbed, by a seed; `inputs.py` the text of an input, and how it is found in an
output. `program.py` runs the processes, `feeder.py` writes the inputs, `reader.py` reads like a read_committed
consumer and says how long a transaction can stay open, `disturber.py` carries the disturbances out. `run.py` is one
run, which `stage.py` sets up. The judge is in `checkers/pipeline.py`.
"""
