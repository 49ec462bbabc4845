"""The Spark jobs of one attempt at a micro-batch: they can be cancelled, and asked whether a stage ran twice."""

from __future__ import annotations

import logging
import time
import uuid
from typing import Any

from fencepost.spark.checkpoint.files import has_gateway

log = logging.getLogger("fencepost.spark")

# Spark reports a failed task in less time than this. A cancelled job says only that it was cancelled, so the sink waits
# for the better message.
CANCEL_AFTER_S = 1.0
STATUS_LAG_S = 10.0


class Jobs:
    """All jobs that are started in a `with` block."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.context = session.sparkContext if has_gateway(session) else None  # None: Spark Connect.
        self._tag = f"fencepost-{uuid.uuid4().hex}"
        self._is_over = False

    def __enter__(self) -> Jobs:
        if self.context is not None:
            self.context.addJobTag(self._tag)
        else:
            self._session.addTag(self._tag)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        if self.context is not None:
            self.context.removeJobTag(self._tag)
        else:
            self._session.removeTag(self._tag)

    def cancel_soon(self) -> None:
        """Cancel the jobs of a broken transaction. Their tasks get no lease any more, and need not go on until then."""
        time.sleep(CANCEL_AFTER_S)
        if self._is_over:
            return
        if self.context is not None:
            self.context.cancelJobsWithTag(self._tag)
        else:
            self._session.interruptTag(self._tag)

    def _job_ids(self) -> list[int]:
        assert self.context is not None
        # PySpark's own tracker finds jobs by group only, and the job of a plain write has no group.
        return list(self.context._jsc.sc().statusTracker().getJobIdsForTag(self._tag))

    def was_a_stage_repeated(self) -> bool:
        """Always False with Spark Connect, which does not say. There Spark itself fails a job whose input it knows to
        come out differently the second time."""
        if self.context is None:
            return False
        tracker = self.context.statusTracker()
        for job_id in self._job_ids():
            job = _ended_job(tracker, job_id)
            if job is not None and job.status == "RUNNING":
                log.warning("Spark's status lags behind its jobs: it does not know of the end of job %d", job_id)
                return True  # It may have been, and a second attempt is safe.
            for stage_id in job.stageIds if job else ():
                stage = tracker.getStageInfo(stage_id)
                if stage is not None and stage.currentAttemptId > 0:
                    return True
        return False


def _ended_job(tracker: Any, job_id: int) -> Any:
    """The status of a job that has ended. Spark updates it a moment later, and that of the stages before."""
    deadline = time.monotonic() + STATUS_LAG_S
    while True:
        job = tracker.getJobInfo(job_id)
        if job is None or job.status != "RUNNING" or time.monotonic() > deadline:
            return job
        time.sleep(0.005)
