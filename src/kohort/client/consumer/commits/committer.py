"""Commits: by the application, by auto-commit, and before partitions are given up."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from msgspec import Struct, field

from kohort.client.consumer.commits.offsets import shown
from kohort.client.consumer.commits.requests import UNKNOWN, codes_of, in_parts, with_ids, worst
from kohort.client.consumer.membership.shell import Membership
from kohort.client.net.backoff import Backoff, Deadline, may_pass
from kohort.client.net.cluster import Cluster
from kohort.client.net.coordinator import MOVED, Coordinator
from kohort.client.net.metadata import ClusterMetadata
from kohort.client.net.versions import COMMIT_BY_NAME
from kohort.errors import (
    CommitFailedError,
    ErrorCode,
    KafkaError,
    KohortError,
    LocalProtocolError,
    PartialFailureError,
    RebalanceInProgressError,
    RequestTimedOutError,
    with_right,
)
from kohort.group.member import commits
from kohort.group.member.commits import CommitIdentity, CommitVerdict
from kohort.group.member.events import CommitAnswered
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetCommitResponse

log = logging.getLogger("kohort.client")

Offsets = Mapping[TopicPartition, OffsetAndMetadata]

# How many partitions an error names.
_SHOWN = 5

_NOBODY = CommitIdentity("", -1)
# The broker refuses one partition for these, and stores the others.
_OF_A_PARTITION = (
    ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
# A coordinator may learn of a new topic this much later than its leader, in seconds.
_GRACE_S = 0.5
_PATIENCE_S = 5.0
_LOOK_MS = 1_000


def cancelled_commit() -> LocalProtocolError:
    """Return the error of a commit whose caller stopped waiting."""
    return LocalProtocolError(
        "the commit was cancelled before it was answered; the broker may still have stored it,"
        " so commit again"
    )


class _Work(Struct):
    """One commit.

    Attributes:
        left: Offsets that remain to be stored.
        ids: Ids of the topics at the start of the commit.
        number: Sequence number; a later commit has a higher number.
        gone: Offsets whose partition no longer exists, and why.
        refused: Offsets that the broker refuses, and the error code for the partition.
    """

    number: int
    left: dict[TopicPartition, OffsetAndMetadata]
    ids: dict[TopicPartition, UUID | None]
    gone: dict[TopicPartition, tuple[OffsetAndMetadata, str]] = field(default_factory=dict)
    refused: dict[TopicPartition, tuple[OffsetAndMetadata, int]] = field(default_factory=dict)


class Committer:
    """Commits positions to the group's coordinator.

    Args:
        cluster: The brokers.
        coordinator: The group's coordinator.
        group_instance_id: The id of a static member.
        topic_id_of: Returns the id of the topic that a position belongs to; None for the current
            one.

    Attributes:
        membership: The member on whose behalf offsets are stored; None for no member id.
        told: Called with the offsets of each auto-commit, and None or the error.
    """

    def __init__(
        self,
        cluster: Cluster,
        coordinator: Coordinator,
        group_instance_id: str | None,
        topic_id_of: Callable[[TopicPartition], UUID | None] = lambda _: None,
    ) -> None:
        self.membership: Membership | None = None
        self._cluster = cluster
        self._coordinator = coordinator
        self._group_instance_id = group_instance_id
        self._what = f"the commit to group {coordinator.group_id}"
        self.told: Callable[[Offsets, KohortError | None], object] = lambda *_: None
        self._topic_id_of = topic_id_of
        # Stored, or given up because the topic no longer exists.
        self._settled: dict[TopicPartition, tuple[int, UUID | None]] = {}
        self._unknown_since: dict[TopicPartition, float] = {}
        self._numbers = itertools.count()
        # The number of the latest stored commit of each partition, and of those awaiting an answer.
        self._stored: dict[TopicPartition, int] = {}
        self._asked: dict[TopicPartition, set[int]] = {}

    def news(self, offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that this client has not settled yet."""
        return {
            partition: position
            for partition, position in offsets.items()
            if self._settled.get(partition) != (position.offset, self._topic_id(partition))
        }

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget stored offsets: other members may commit for these partitions from now on."""
        for partition in partitions:
            self._settled.pop(partition, None)
            self._unknown_since.pop(partition, None)

    async def commit(self, offsets: Offsets, deadline: Deadline) -> None:
        """Commit offsets, retrying until the deadline.

        Stores the other offsets even if some partitions no longer exist.

        Args:
            offsets: The offsets to commit.
            deadline: When to give up.

        Raises:
            CommitFailedError: The partitions may belong to another member now.
            RebalanceInProgressError: Poll, then commit again.
            PartialFailureError: Some partitions do not exist or are refused; the others are stored.
            KafkaError: There was no answer in time, or the broker refused.
        """
        work = self._begin(offsets)
        await self._finish(work, deadline, is_ours=False)
        errors = self._refused(work)
        errors.update((each, self._gone(each, work)) for each in sorted(work.gone))
        if errors:
            raise PartialFailureError(errors)

    def _refused(self, work: _Work) -> dict[object, KafkaError]:
        return {
            each: KafkaError(
                code, with_right(code, f"{self._what}: {shown(each)} at offset {at.offset}", "READ")
            )
            for each, (at, code) in sorted(work.refused.items())
        }

    async def commit_quietly(
        self, offsets: Offsets, deadline: Deadline, *, is_ours: bool = False
    ) -> None:
        """Commit like `commit`, for auto-commit: failures are logged.

        Args:
            offsets: The offsets to commit.
            deadline: When to give up.
            is_ours: Whether the partitions are sure to stay with this member until then, so that a
                commit that failed because of a new epoch may be repeated in it (L37).
        """
        news = self.news(offsets)
        work = self._begin(news)
        try:
            await self._finish(work, deadline, is_ours)
        except RebalanceInProgressError:
            log.debug("auto-commit waits for the end of a rebalance")
        except KohortError as error:
            self._failed(news, error)
        except asyncio.CancelledError:  # a leaving consumer stops waiting
            if work.left:
                self._failed(news, self._given_up(work, deadline))
            raise
        else:
            self._end(news, work)

    def _given_up(self, work: _Work, deadline: Deadline) -> KafkaError:
        where = ", ".join(
            f"{shown(each)} at offset {at.offset}"
            for each, at in itertools.islice(sorted(work.left.items()), _SHOWN)
        )
        cause = deadline.cause or self._cluster.unreachable
        error = RequestTimedOutError(
            f"{self._what} was given up before it was answered, so records will be read again"
            f" unless the broker has stored it anyway ({where})" + (f": {cause}" if cause else "")
        )
        error.__cause__ = cause
        return error

    async def try_quietly(self, offsets: Offsets) -> bool:
        """Commit once, for callers that retry with newer offsets; failures are logged.

        Returns:
            Whether it is settled; False if another attempt may succeed.
        """
        news = self.news(offsets)
        work = self._begin(news)
        try:
            deadline = Deadline(self._cluster.config.request_timeout_ms)
            await self._try(work, deadline, is_ours=False)
        except RebalanceInProgressError:
            log.debug("auto-commit waits for the end of a rebalance")
        except KohortError as error:
            if may_pass(error):
                log.debug("auto-commit will be tried again: %s", error)
                return False
            self._failed(news, error)
        except Exception as error:  # noqa: BLE001  # a bug; it is logged
            self._cluster.incidents.note_defect("auto-commit", error)
            return False
        else:
            self._end(news, work)
            return not work.left
        return True

    def _failed(self, news: Offsets, error: KohortError) -> None:
        self._cluster.incidents.say(f"auto-commit failed: {error}")
        self.told(news, error)

    def _end(self, news: Offsets, work: _Work) -> None:
        """Report the stored and abandoned offsets of a finished auto-commit."""
        if work.gone:
            gone = "; ".join(self._gone(each, work).message for each in sorted(work.gone))
            text = f"auto-commit has left out partitions that no longer exist: {gone}"
            self._cluster.incidents.say(text)
        if work.refused:
            refused = {each: at for each, (at, _) in work.refused.items()}
            self._failed(refused, PartialFailureError(self._refused(work)))
        if news and not work.left:
            without = {*work.gone, *work.refused}
            self.told({each: at for each, at in news.items() if each not in without}, None)

    def _begin(self, offsets: Offsets) -> _Work:
        ids = {each: self._topic_id(each) for each in offsets}
        return _Work(next(self._numbers), dict(offsets), ids)

    def _topic_id(self, partition: TopicPartition) -> UUID | None:
        """Return the id of the topic that an offset belongs to; None when not known."""
        return self._topic_id_of(partition) or self._present_id(partition)

    def _present_id(self, partition: TopicPartition) -> UUID | None:
        return self._cluster.metadata.topic_id(partition.topic)

    async def _finish(self, work: _Work, deadline: Deadline, is_ours: bool) -> None:
        pause = Backoff(self._cluster.config.retry_backoff_ms, 1_000)
        deadline.what = deadline.what or self._what
        while work.left:
            try:
                await self._try(work, deadline, is_ours)
            except KohortError as error:
                passing = may_pass(error) and not isinstance(error, RebalanceInProgressError)
                if not passing or deadline.over:
                    raise
                deadline.note(error)
            if work.left:
                await self._cluster.sleep(pause, deadline)

    async def _try(self, work: _Work, deadline: Deadline, is_ours: bool) -> None:
        """Try once to commit what is left; the remainder has to be retried."""
        self._check_member()
        async with self._cluster.within(deadline, self._what):
            await self._coordinator.reach()  # requests from here on keep their order
        for part in in_parts(self._coordinator.group_id, dict(work.left)):
            if asked := self._askable(part, work):
                await self._ask(asked, work, deadline, is_ours)

    def _askable(self, part: Offsets, work: _Work) -> Offsets:
        """Return the offsets of a part that are still to be sent: others may have been settled."""
        self._drop_overtaken(work)
        self._drop_remade(work)
        return {
            each: at for each, at in part.items() if each in work.left and self._may_ask(each, work)
        }

    async def _ask(self, asked: Offsets, work: _Work, deadline: Deadline, is_ours: bool) -> None:
        request, sent = self._request(asked, work)
        for partition in asked:
            self._asked.setdefault(partition, set()).add(work.number)
        try:
            response = await self._answer(request, work, deadline)
        finally:
            for partition in asked:
                self._asked[partition].discard(work.number)
        codes = codes_of(response, work.ids)
        for partition in [each for each in work.left if codes.get(each) == ErrorCode.NONE]:
            position = work.left.pop(partition)
            self._settle(partition, position, work)
            self._stored[partition] = max(work.number, self._stored.get(partition, -1))
        for partition in [each for each in work.left if codes.get(each) in _OF_A_PARTITION]:
            work.refused[partition] = work.left.pop(partition), codes[partition]
        unknown = [each for each in asked if codes.get(each) in UNKNOWN and each in work.left]
        code = worst(code for each, code in codes.items() if each in work.left)
        verdict = self._verdict(sent, code)
        if self.membership is not None:
            self.membership.run(CommitAnswered(sent, code))
        if code in MOVED:
            self._coordinator.forget()
        if verdict is CommitVerdict.STALE_EPOCH:
            verdict = CommitVerdict.RETRY if is_ours else CommitVerdict.COMMIT_FAILED
        self._judge(verdict, code, work, deadline)
        if unknown:
            await self._drop_gone(unknown, work, deadline)

    async def _answer(
        self, request: OffsetCommitRequest, work: _Work, deadline: Deadline
    ) -> OffsetCommitResponse:
        timeout_ms = max(1, deadline.left_ms(self._cluster.config.request_timeout_ms))
        has_ids = all(work.ids[each] for each in work.left)
        async with self._cluster.within(deadline, self._what):
            return await self._coordinator.send(
                request, timeout_ms=timeout_ms, at_most=None if has_ids else COMMIT_BY_NAME
            )

    def _judge(self, verdict: CommitVerdict, code: int, work: _Work, deadline: Deadline) -> None:
        if verdict is CommitVerdict.DONE:
            return
        if verdict is CommitVerdict.RETRY:
            where = ", ".join(map(shown, itertools.islice(work.left, _SHOWN)))
            deadline.note(KafkaError(code, where))
            if deadline.over and code not in UNKNOWN:
                raise deadline.expired() from deadline.cause
            return
        if verdict is CommitVerdict.REBALANCE_IN_PROGRESS:
            raise RebalanceInProgressError("poll, then commit again")
        if verdict is CommitVerdict.COMMIT_FAILED:
            raise CommitFailedError(code, f"{self._what} was refused: {self._why_out(code)}")
        why = self._why_out(code) if code == ErrorCode.FENCED_INSTANCE_ID else ""
        text = f"{self._what} was refused" + (f": {why}" if why else "")
        raise KafkaError(code, with_right(code, text, "READ"))

    # --------------------------------------------------------------- what no longer exists

    def _settle(self, partition: TopicPartition, position: OffsetAndMetadata, work: _Work) -> None:
        self._settled[partition] = position.offset, work.ids[partition]
        self._unknown_since.pop(partition, None)

    def _may_ask(self, partition: TopicPartition, work: _Work) -> bool:
        """Whether no later commit is in flight, which this one could undo; otherwise it waits."""
        return max(self._asked.get(partition, ()), default=-1) < work.number

    def _drop_overtaken(self, work: _Work) -> None:
        """Drop offsets that would undo a later commit that is already stored."""
        for partition in list(work.left):
            if self._stored.get(partition, -1) > work.number:
                del work.left[partition]

    def _drop_remade(self, work: _Work) -> None:
        """Drop offsets of a deleted topic, which are meaningless in its successor (KIP-516)."""
        for partition in list(work.left):
            before, now = work.ids[partition], self._present_id(partition)
            if before and now and before != now:
                self._drop(partition, _made_anew(before, now), work)

    def _drop(self, partition: TopicPartition, why: str, work: _Work) -> None:
        position = work.left.pop(partition)
        work.gone[partition] = position, why
        self._settle(partition, position, work)

    async def _drop_gone(
        self, unknown: list[TopicPartition], work: _Work, deadline: Deadline
    ) -> None:
        """Drop partitions that neither the coordinator nor another broker knows, after a delay."""
        now = asyncio.get_running_loop().time()
        for partition in unknown:
            self._unknown_since.setdefault(partition, now)
        waited_s = {each: now - self._unknown_since[each] for each in unknown}
        late = [each for each in unknown if deadline.over or waited_s[each] > _GRACE_S]
        if not late:
            return
        found = await self._look({each.topic for each in late})
        for partition in late:
            why = found and _why_gone(found, partition, work.ids[partition])
            if why or deadline.over or waited_s[partition] > _PATIENCE_S:
                self._drop(partition, why or "the coordinator does not know it", work)

    async def _look(self, topics: set[str]) -> ClusterMetadata | None:
        """Ask another broker about topics; return None when it cannot answer now."""
        try:
            return await self._cluster.describe(topics, Deadline(_LOOK_MS))
        except KohortError as error:
            log.debug("topics of a commit: %s", error)
            return None

    def _gone(self, partition: TopicPartition, work: _Work) -> KafkaError:
        position, why = work.gone[partition]
        where = f"{self._what}: {shown(partition)} at offset {position.offset}"
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where}: {why}")

    # ------------------------------------------------------------------------------- the request

    def _request(self, offsets: Offsets, work: _Work) -> tuple[OffsetCommitRequest, CommitIdentity]:
        if self.membership is None:
            request = commits.commit_request(
                self._coordinator.group_id, _NOBODY, self._group_instance_id, offsets
            )
            return with_ids(request, work.ids), _NOBODY
        self._check_member()
        member = self.membership.member
        return with_ids(member.commit_request(offsets), work.ids), member.identity

    def _check_member(self) -> None:
        if self.membership is None or self.membership.member.session.is_member:
            return
        cause = self._cluster.unreachable
        error = CommitFailedError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"{self._what}: this consumer is not a member of its group now: {self._why_out()}"
            + (f" ({cause})" if cause else ""),
        )
        raise error from cause

    def _why_out(self, code: int = 0) -> str:
        if self.membership is None:
            return (
                "the group has members, and only they may commit; this client is not one. Commit"
                " with another group.id, or subscribe instead of assigning manually"
            )
        why = self.membership.why_out(code)
        if not why:
            return "it has not joined yet, or has left. Poll, then commit again"
        if code == ErrorCode.FENCED_INSTANCE_ID:
            return why
        return f"{why} Other members may have its partitions. Poll to join again"

    def _verdict(self, sent: CommitIdentity, code: int) -> CommitVerdict:
        if self.membership is None:
            return commits.verdict(code, sent, sent, rebalancing=False)
        return self.membership.member.commit_verdict(sent, code)


def _made_anew(before: UUID, now: UUID) -> str:
    return f"the topic was deleted and recreated, its id was {before} and is {now}"


def _why_gone(found: ClusterMetadata, partition: TopicPartition, before: UUID | None) -> str:
    """Return why a partition does not exist; empty when another broker knows it."""
    topic = found.topics.get(partition.topic)
    if topic is None or topic.error_code:
        is_gone = topic is None or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return "the topic does not exist" if is_gone else ""
    if before and topic.topic_id.int and topic.topic_id != before:
        return _made_anew(before, topic.topic_id)
    return "" if partition.partition in topic.partitions else "the partition does not exist"
