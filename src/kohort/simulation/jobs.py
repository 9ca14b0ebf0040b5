"""The coordinator's slow work, done at once: virtual time says how long it took."""

from __future__ import annotations

from typing import TypeAlias

from kohort.broker.jobs import match_topics
from kohort.group.assignors import SERVER_ASSIGNORS
from kohort.group.coordinator.consumer import target
from kohort.group.coordinator.consumer.jobs import (
    ConsumerJob,
    NewTarget,
    RegexJob,
    TargetJob,
)
from kohort.group.coordinator.draft import jobs as draft_jobs
from kohort.group.coordinator.draft.jobs import DraftAssignmentJob, DraftJobDone
from kohort.group.coordinator.events import JobDone

Job: TypeAlias = ConsumerJob | DraftAssignmentJob


def do_job(job: Job, wall_ms: int, *, fails: bool = False) -> JobDone | DraftJobDone:
    """Do a job, and return the event that reports it.

    Args:
        job: The job.
        wall_ms: Time of day in milliseconds since 1970.
        fails: Whether what it needs an assignor for fails.
    """
    if isinstance(job, DraftAssignmentJob):
        return DraftJobDone(job, None if fails else draft_jobs.compute(job))
    if isinstance(job, RegexJob):
        return JobDone(job.token, job.group_id, match_topics(job), wall_ms)
    made = NewTarget(error="the assignor raised") if fails else _make(job)
    return JobDone(job.token, job.group_id, made, wall_ms)


def _make(job: TargetJob) -> NewTarget:
    try:
        return target.make(job, SERVER_ASSIGNORS)
    except Exception as error:  # noqa: BLE001  # an assignor must not take the coordinator down
        return NewTarget(error=str(error))
