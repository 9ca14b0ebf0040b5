"""Jobs of the coordinator, done at once by the broker's code; time is only virtual."""

from __future__ import annotations

from typing import cast

from kohort.broker.coordination.jobs import do_consumer_job, share_out
from kohort.group.coordinator.consumer.decision import ConsumerJob, TargetJob
from kohort.group.coordinator.events import JobDone
from kohort.group.coordinator.jobs import DraftAssignmentJob, DraftJobDone, Job, NewTarget

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
    asked = cast("ConsumerJob", job)
    result = NewTarget(error="the assignor raised") if fails else do_consumer_job(asked)
    return JobDone(asked.token, asked.group_id, result, wall_ms)
