"""Commits: of the application, of auto-commit, and before partitions are given up."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping

from kohort.client.backoff import Backoff, Deadline
from kohort.client.cluster import Cluster
from kohort.client.coordinator import MOVED, Coordinator
from kohort.client.membership import Membership
from kohort.client.offsets import shown
from kohort.errors import (
    CommitFailedError,
    ErrorCode,
    KafkaError,
    KohortError,
    RebalanceInProgressError,
)
from kohort.group.member import commits
from kohort.group.member.commits import CommitIdentity, CommitVerdict
from kohort.group.member.events import CommitAnswered
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetCommitResponse

log = logging.getLogger("kohort.client")

Offsets = Mapping[TopicPartition, OffsetAndMetadata]

# Partitions that an error names.
_SHOWN = 5

_NOBODY = CommitIdentity("", -1)


class Committer:
    """Stores positions with the group's coordinator.

    Args:
        cluster: The brokers.
        coordinator: The group's coordinator.
        group_instance_id: Of a static member.
    """

    def __init__(
        self, cluster: Cluster, coordinator: Coordinator, group_instance_id: str | None
    ) -> None:
        self.membership: Membership | None = None
        self._cluster = cluster
        self._coordinator = coordinator
        self._group_instance_id = group_instance_id
        self._stored: dict[TopicPartition, int] = {}

    def news(self, offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that are not stored already, as far as this client knows."""
        return {
            partition: position
            for partition, position in offsets.items()
            if self._stored.get(partition) != position.offset
        }

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Do not count on what is stored: others may commit for these partitions from now on."""
        for partition in partitions:
            self._stored.pop(partition, None)

    async def commit(self, offsets: Offsets, deadline: Deadline, *, is_ours: bool = False) -> None:
        """Store offsets, trying until the deadline.

        Args:
            offsets: What to store.
            deadline: When to give up.
            is_ours: Whether the partitions surely stay this member's until then, so that a commit
                which a new epoch has overtaken may be repeated in it (L37).

        Raises:
            CommitFailedError: The partitions may belong to another member now.
            RebalanceInProgressError: Poll, then commit again.
            KafkaError: There was no answer in time, or the broker refuses.
        """
        if not offsets:
            return
        pause = Backoff(self._cluster.config.retry_backoff_ms, 1_000)
        deadline.what = deadline.what or f"the commit to group {self._coordinator.group_id}"
        while True:
            try:
                if await self._try(offsets, deadline, is_ours):
                    return
            except KafkaError as error:
                passing = error.retriable and not isinstance(error, RebalanceInProgressError)
                if not passing or deadline.over:
                    raise
                deadline.note(error)
            await self._cluster.sleep(pause, deadline)

    async def commit_quietly(
        self, offsets: Offsets, deadline: Deadline, *, is_ours: bool = False
    ) -> None:
        """As `commit`, for auto-commit: what fails is logged."""
        try:
            await self.commit(self.news(offsets), deadline, is_ours=is_ours)
        except RebalanceInProgressError:
            log.debug("auto-commit waits for the end of a rebalance")
        except KohortError as error:
            log.warning("auto-commit failed: %s", error)

    async def try_quietly(self, offsets: Offsets) -> bool:
        """Commit once, for who comes again with newer offsets; what fails is logged.

        Returns:
            Whether that is settled; False: another attempt may succeed.
        """
        news = self.news(offsets)
        try:
            deadline = Deadline(self._cluster.config.request_timeout_ms)
            return not news or await self._try(news, deadline, is_ours=False)
        except RebalanceInProgressError:
            log.debug("auto-commit waits for the end of a rebalance")
        except KohortError as error:
            if isinstance(error, KafkaError) and error.retriable:
                log.debug("auto-commit will be tried again: %s", error)
                return False
            log.warning("auto-commit failed: %s", error)
        return True

    async def _try(self, offsets: Offsets, deadline: Deadline, is_ours: bool) -> bool:
        """Commit once; False when it is to be tried again."""
        request, sent = self._request(offsets)
        timeout_ms = max(1, deadline.left_ms(self._cluster.config.request_timeout_ms))
        what = f"the commit to group {self._coordinator.group_id}"
        async with self._cluster.within(deadline, what):
            response = await self._coordinator.send(request, timeout_ms=timeout_ms)
        code = _worst(response)
        verdict = self._verdict(sent, code)
        if self.membership is not None:
            self.membership.run(CommitAnswered(sent, code))
        if code in MOVED:
            self._coordinator.forget()
        if verdict is CommitVerdict.STALE_EPOCH:
            verdict = CommitVerdict.RETRY if is_ours else CommitVerdict.COMMIT_FAILED
        return self._judged(verdict, code, offsets, deadline)

    def _judged(
        self, verdict: CommitVerdict, code: int, offsets: Offsets, deadline: Deadline
    ) -> bool:
        if verdict is CommitVerdict.DONE:
            self._stored.update({each: position.offset for each, position in offsets.items()})
            return True
        if verdict is CommitVerdict.RETRY:
            deadline.note(
                KafkaError(code, ", ".join(map(shown, itertools.islice(offsets, _SHOWN))))
            )
            if deadline.over:
                raise deadline.expired() from deadline.cause
            return False
        if verdict is CommitVerdict.REBALANCE_IN_PROGRESS:
            raise RebalanceInProgressError("poll, then commit again")
        if verdict is CommitVerdict.COMMIT_FAILED:
            raise _failed(code)
        raise KafkaError(code, f"commit to group {self._coordinator.group_id}")

    def _request(self, offsets: Offsets) -> tuple[OffsetCommitRequest, CommitIdentity]:
        if self.membership is None:
            request = commits.commit_request(
                self._coordinator.group_id, _NOBODY, self._group_instance_id, offsets
            )
            return request, _NOBODY
        member = self.membership.member
        if not member.session.is_member:
            raise _failed(ErrorCode.UNKNOWN_MEMBER_ID)
        return member.commit_request(offsets), member.identity

    def _verdict(self, sent: CommitIdentity, code: int) -> CommitVerdict:
        if self.membership is None:
            return commits.verdict(code, sent, sent, rebalancing=False)
        return self.membership.member.commit_verdict(sent, code)


def _worst(response: OffsetCommitResponse) -> int:
    """Return the error code to act upon: one that stays before one that passes."""
    codes = [entry.error_code for topic in response.topics for entry in topic.partitions]
    errors = [code for code in codes if code]
    lasting = [code for code in errors if not KafkaError(code).retriable]
    return next(iter(lasting or errors), 0)


def _failed(code: int) -> CommitFailedError:
    return CommitFailedError(
        code,
        "the partitions may belong to another member now. Process records faster than"
        " max.poll.interval.ms allows, or take fewer of them at a time (max.poll.records)",
    )
