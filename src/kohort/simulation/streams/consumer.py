"""The consumer of a simulated instance, on top of the member's machine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import cast

from kohort.client.consumer.listener import Listens
from kohort.errors import (
    CommitFailedError,
    ErrorCode,
    KafkaError,
    RebalanceInProgressError,
    RequestTimedOutError,
)
from kohort.group.member.commits import CommitIdentity, CommitVerdict
from kohort.group.member.events import Closing, CommitAnswered, RejoinAsked
from kohort.simulation.groups import positions
from kohort.simulation.groups.facts import Committing
from kohort.simulation.streams.base import BaseProcess, BaseStreamsApplication, Offsets, Records
from kohort.streams.assignment.member import TaskMemberState
from kohort.streams.assignor import LearnerAssignor
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.codec.schema import Message
from kohort.wire.messages.offsets import OffsetCommitResponse, OffsetFetchResponse

_COMMIT_PATIENCE_S = 60.0
_AGAIN_S = 0.1


class _Membership:
    """The part of a consumer's member that the runtime uses."""

    def __init__(self, process: BaseProcess) -> None:
        self._process = process
        self.member = process.machine

    @property
    def is_session_over(self) -> bool:
        """Whether the coordinator may have removed the member."""
        return self._process.is_session_over

    @property
    def fatal(self) -> BaseException | None:
        """Why the member cannot go on."""
        streams = self._process.streams
        return streams.last_error if streams.is_fatal else None


class GroupConsumer:
    """The consumer of a process: the part that the runtime of streams uses.

    Args:
        application: Drives the member.
    """

    def __init__(self, application: BaseStreamsApplication) -> None:
        self._application = application
        self._process = application.process

    @property
    def _internals(self) -> GroupConsumer:
        """What `internals_of` returns for it."""
        return self

    @property
    def core(self) -> GroupConsumer:
        """The internals of the consumer."""
        return self

    @property
    def membership(self) -> _Membership:
        """Its member."""
        return _Membership(self._process)

    @property
    def member_id(self) -> str:
        """Id of its member."""
        return self._process.machine.member_id

    @property
    def generation_id(self) -> int:
        """Generation of its member."""
        return self._process.machine.generation_id

    def subscribe(self, _topics: Sequence[str], *, listener: Listens) -> None:
        """Join the group."""
        self._application.listener_object = listener
        self._application.join()

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions."""
        return frozenset(self._application.believes)

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop reading partitions."""
        self._application.paused |= frozenset(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Read these again."""
        self._application.paused -= frozenset(partitions)
        self._application.wake()

    def wakeup(self) -> None:
        """End the poll that waits, or the next one."""
        self._application.is_woken = True
        self._application.wake()

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return its lag."""
        position = self._application.positions.get(partition)
        return None if position is None else self._process.world.topics.end(partition) - position

    def enforce_rebalance(self, reason: str) -> None:
        """Ask for a rebalance."""
        self._process.step("ask for a rebalance")
        self._process.ask(RejoinAsked(reason))

    async def poll(self, timeout_ms: int = 0) -> Records:
        """Return records."""
        return await self._application.poll(timeout_ms)

    async def close(self, timeout_s: float = 30.0) -> None:
        """Leave the group."""
        application, process = self._application, self._process
        if not process.alive:
            return
        assignor = process.assignors[0]
        if (
            isinstance(assignor, LearnerAssignor)
            and assignor.session.state is TaskMemberState.STOPPED
        ):
            process.streams_world.leaves(process)
        application.closing = True
        if application.closing_since is None:
            application.closing_since = process.world.engine.now
        process.ask(Closing())
        until = application.loop.time() + timeout_s
        while not process.machine.is_closed:
            application.serve()
            left = until - application.loop.time()
            if left <= 0:
                break
            await application.news_within(left)

    # ------------------------------------------------------------------------------------ offsets

    async def commit(self, offsets: Offsets) -> None:
        """Store positions with the group.

        Raises:
            CommitFailedError: The partitions may belong to another member.
            RebalanceInProgressError: Poll, then commit again.
            KafkaError: The coordinator refuses.
        """
        process, application = self._process, self._application
        until = application.loop.time() + _COMMIT_PATIENCE_S
        process.step("commit offsets")
        while True:
            if not process.machine.session.is_member:
                raise CommitFailedError(ErrorCode.UNKNOWN_MEMBER_ID, "no member any more")
            request = process.machine.commit_request(offsets)
            if process.world.checking:
                process.world.check(Committing(process, dict(offsets)))
            sent = process.machine.identity
            response = cast("OffsetCommitResponse | None", await self._asked(request))
            verdict, code = self._verdict(sent, response)
            if verdict is CommitVerdict.DONE:
                application.stored.update({each: at.offset for each, at in offsets.items()})
                process.step("offsets are committed")
                return
            if verdict is CommitVerdict.REBALANCE_IN_PROGRESS:
                raise RebalanceInProgressError("poll, then commit again")
            if verdict in (CommitVerdict.COMMIT_FAILED, CommitVerdict.STALE_EPOCH):
                raise CommitFailedError(code, "refused")
            if verdict is CommitVerdict.RAISE:
                raise KafkaError(code, "refused")
            if application.loop.time() > until:
                raise RequestTimedOutError("no answer to a commit")
            await asyncio.sleep(_AGAIN_S)

    def _verdict(
        self, sent: CommitIdentity, response: OffsetCommitResponse | None
    ) -> tuple[CommitVerdict, int]:
        if response is None:
            return CommitVerdict.RETRY, 0
        code = positions.error_of(response)
        verdict = self._process.machine.commit_verdict(sent, code)
        self._process.tell(CommitAnswered(sent, code))
        return verdict, code

    async def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, object]:
        """Return the offsets that the group has stored."""
        wanted = sorted(partitions)
        while True:
            request = positions.request(self._process, wanted)
            response = await self._asked(request)
            found = _offsets(cast("OffsetFetchResponse | None", response))
            if found.keys() == set(wanted):
                return {each: at for each, at in found.items() if at.offset >= 0}
            await asyncio.sleep(_AGAIN_S)

    async def _asked(self, request: Message) -> Message | None:
        future = self._application.loop.create_future()
        if self._process.alive:
            self._process.request("group", request, partial(_answer, future))
        return cast("Message | None", await future)


def _answer(future: asyncio.Future[object], response: Message | None) -> None:
    if not future.done():
        future.set_result(response)


def _offsets(response: OffsetFetchResponse | None) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets of an answer, -1 where there is none, without those with an error."""
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for group in response.groups if response is not None else ():
        for topic in () if group.error_code else group.topics:
            for each in topic.partitions:
                if not each.error_code:
                    offset = OffsetAndMetadata(each.committed_offset, each.metadata or "")
                    found[TopicPartition(topic.name, each.partition_index)] = offset
    return found
