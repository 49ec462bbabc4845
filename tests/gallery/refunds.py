"""The job of `fencepost demo refunds`, with our sink (right) or with Spark's (wrong): SINK FOLDER SOURCE TARGET TARGET.

It ends when it has read what was there at its start, and is started again. Its micro-batches are slow, so that most
kills happen inside one.
"""

from __future__ import annotations

import os
import sys
import time

from fencepost.demo.refunds.job import Cues, JobPlan, run_job

PAUSE_S = 2.0


class SlowCues(Cues):
    def reached(self, point: str, batch_id: int) -> None:
        time.sleep(PAUSE_S)
        super().reached(point, batch_id)


sink, folder, settlements, refunds, audit = sys.argv[1:]
os.makedirs(f"{folder}/scratch", exist_ok=True)
plan = JobPlan(
    bootstrap_servers=os.environ["FENCEPOST_BOOTSTRAP"],
    settlements=settlements,
    refunds=refunds,
    audit=audit,
    group_id="tills",
    transactional_id="tills-1",
    checkpoint=f"{folder}/checkpoint",
    scratch=f"{folder}/scratch",
    offsets_per_batch=80,
    sink=sink,
)
# The job ends when its stdin is closed, and the verifier gives it none.
reader, writer = os.pipe()
os.dup2(reader, 0)
run_job(plan, SlowCues(plan))
