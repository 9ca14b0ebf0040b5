"""Slow work of the coordinator, done at once by the code of the broker; time is only virtual."""

from __future__ import annotations

from kohort.broker.jobs import Job, do_consumer_job, share_out
from kohort.group.coordinator.consumer.jobs import NewTarget, TargetJob
from kohort.group.coordinator.draft.jobs import DraftAssignmentJob, DraftJobDone
from kohort.group.coordinator.events import JobDone

__all__ = ["Job", "do_job", "may_fail"]


def may_fail(job: Job) -> bool:
    """Whether a job needs an assignor of the coordinator, which may raise."""
    return isinstance(job, (DraftAssignmentJob, TargetJob))


def do_job(job: Job, wall_ms: int, *, fails: bool = False) -> JobDone | DraftJobDone:
    """Do a job, and return the event that reports it.

    Args:
        job: The job.
        wall_ms: Time of day in milliseconds since 1970.
        fails: Whether its assignor raises.
    """
    if isinstance(job, DraftAssignmentJob):
        return DraftJobDone(job, None) if fails else share_out(job)
    result = NewTarget(error="the assignor raised") if fails else do_consumer_job(job)
    return JobDone(job.token, job.group_id, result, wall_ms)
