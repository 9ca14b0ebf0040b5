"""The coordinator's slow work, done at once: virtual time says how long it took."""

from __future__ import annotations

from typing import TypeAlias

from kohort.group.assignors import SERVER_ASSIGNORS
from kohort.group.coordinator.consumer import target
from kohort.group.coordinator.consumer.jobs import ConsumerJob, NewTarget, TargetJob
from kohort.group.coordinator.draft import jobs as draft_jobs
from kohort.group.coordinator.draft.jobs import DraftAssignmentJob, DraftJobDone
from kohort.group.coordinator.events import JobDone

Job: TypeAlias = ConsumerJob | DraftAssignmentJob


def do_job(job: Job, wall_ms: int) -> JobDone | DraftJobDone:
    """Do a job, and return the event that reports it.

    Raises:
        TypeError: It is a job for regular expressions, which the simulation has none of.
    """
    if isinstance(job, DraftAssignmentJob):
        return DraftJobDone(job, draft_jobs.compute(job))
    if not isinstance(job, TargetJob):
        raise TypeError("regular expressions are not simulated")
    try:
        made = target.make(job, SERVER_ASSIGNORS)
    except Exception as error:  # noqa: BLE001  # an assignor must not take the coordinator down
        made = NewTarget(error=str(error))
    return JobDone(job.token, job.group_id, made, wall_ms)
