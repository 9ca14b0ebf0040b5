"""The coordinator's slow jobs: target assignments and regular expressions (KIP-848)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TypeAlias, cast

import re2  # type: ignore[import-untyped]  # google-re2 comes without type hints

from kohort.group.assignors import SERVER_ASSIGNORS, ServerRangeAssignor, UniformAssignor
from kohort.group.coordinator import jobs as draft_jobs
from kohort.group.coordinator.consumer import client_assignors, target
from kohort.group.coordinator.consumer.decision import ConsumerJob, InstallJob, RegexJob, TargetJob
from kohort.group.coordinator.jobs import (
    DraftAssignmentJob,
    DraftJobDone,
    Job,
    MatchedTopics,
    NewTarget,
)
from kohort.wire.codec.schema import Message
from kohort.wire.group_log import encode_record
from kohort.wire.messages.group_records import GroupRecord

logger = logging.getLogger(__name__)

Encoded: TypeAlias = tuple[bytes, bytes | None]

_RACK_AWARE_ASSIGNORS = {
    assignor.name: assignor
    for assignor in (UniformAssignor(rack_aware=True), ServerRangeAssignor(rack_aware=True))
}

Result: TypeAlias = NewTarget | MatchedTopics | DraftJobDone


def do(job: Job) -> Result:
    """Run a job, in any thread."""
    if isinstance(job, DraftAssignmentJob):
        return share_out(job)
    return do_consumer_job(cast("ConsumerJob", job))


class EncodedAhead:
    """The encoded records that a job has created, thousands perhaps for a large group.

    They are encoded in the job's thread, so that the event loop delays no request.
    """

    def __init__(self, result: Result | None = None) -> None:
        """Encode the records of a result."""
        made = [each.record for each in result.changed] if isinstance(result, NewTarget) else []
        # Records are looked up by identity: comparing two takes as long as encoding one.
        self._known = {id(record): (record, _encoded(record)) for record in made}

    def pair(self, record: GroupRecord) -> Encoded:
        """Return the encoded key and value of any record."""
        known = self._known.get(id(record))
        return _encoded(record) if known is None else known[1]


def _encoded(record: GroupRecord) -> Encoded:
    return encode_record(record.key, record.value)


def do_consumer_job(job: ConsumerJob) -> NewTarget | MatchedTopics:
    """Run a job for a group of the consumer protocol."""
    if isinstance(job, RegexJob):
        return match_topics(job)
    return client_assignors.check_result(job) if isinstance(job, InstallJob) else make_target(job)


def make_target(job: TargetJob) -> NewTarget:
    """Compute a target assignment; if the assignor fails, return the reason (K11)."""
    try:
        return target.make(job, _RACK_AWARE_ASSIGNORS if job.rack_aware else SERVER_ASSIGNORS)
    except Exception as error:  # noqa: BLE001  # a failing assignor must not stop the coordinator
        epoch = job.group.epoch
        return NewTarget(
            error=f"Failed to compute a new target assignment for epoch {epoch}: {error}"
        )


def share_out(job: DraftAssignmentJob) -> DraftJobDone:
    """Assign the partitions of a draft group."""
    try:
        return DraftJobDone(job, draft_jobs.compute(job))
    except Exception:
        logger.exception("assignor %s failed for group %s", job.assignor, job.group_id)
        return DraftJobDone(job, None)


def match_topics(job: RegexJob) -> MatchedTopics:
    """Match all topic names against RE2 regular expressions; the whole name has to match (K50).

    RE2 runs in linear time for any expression, so no request can stall the broker with one. An
    invalid expression, which the log of another broker may contain, matches nothing.
    """
    matches = {text: _matched(text, job.topics.by_name) for text in sorted(job.regexes)}
    return MatchedTopics(matches, job.topics.version)


def _matched(text: str, names: Iterable[str]) -> frozenset[str]:
    try:
        pattern = re2.compile(text, _QUIET)
    except re2.error:
        return frozenset()
    return frozenset(name for name in names if pattern.fullmatch(name))


def regex_error(request: Message, longest: int) -> str | None:
    """Return why a heartbeat's regular expression is invalid; None if it is valid (K50).

    Args:
        request: Any request.
        longest: Expressions with more characters are not checked here: the request is rejected for
            its size.
    """
    text = getattr(request, "subscribed_topic_regex", None)
    if not text or len(text) > longest:
        return None
    try:
        re2.compile(text, _QUIET)
    except re2.error as error:
        return _reason(error)
    return None


def _quiet() -> re2.Options:
    """Return options with which RE2 does not print errors of an expression."""
    options = re2.Options()
    options.log_errors = False
    return options


_QUIET = _quiet()


def _reason(error: re2.error) -> str:
    reason = error.args[0] if error.args else "it cannot be parsed"
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
