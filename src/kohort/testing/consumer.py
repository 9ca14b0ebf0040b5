"""The consumer that a simulation passes to a listener, with all methods of the real one.

The real client's own functions check the arguments, in the same order.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import NoReturn, Self

from kohort.client.config import arguments
from kohort.client.config.definitions import OnCommit
from kohort.client.consumer.aio import CommitOffsets
from kohort.client.consumer.listener import Listens
from kohort.client.consumer.membership.metrics import GROUP as METRICS_GROUP
from kohort.client.consumer.membership.metrics import GroupMetrics
from kohort.client.consumer.records import ConsumerRecord
from kohort.errors import CommitFailedError, ErrorCode, KohortError, LocalProtocolError
from kohort.group.member.events import GroupMembershipOperation, RejoinAsked
from kohort.testing.positions import CallLog, CommittingApplication, SimulatedPositions, shown
from kohort.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

Offsets = dict[TopicPartition, OffsetAndMetadata]
_PATIENCE_MS = 60_000


class SimulatedConsumer(SimulatedPositions):
    """One member's consumer, with the methods of `kohort.Consumer`.

    Calls happen at the virtual time of the call to the listener: no time passes inside a listener.
    A `commit` is sent at once, and the listener counts as returned once the commit is answered;
    `commit` raises errors that are known before: the member is no longer in a group, or is joining
    one.

    Args:
        application: The application of the member.
        log: Records the calls.

    Attributes:
        answered: Callbacks `on_commit` for the next poll.
        calls: Metrics of the calls to the listener.
        committing: Number of unanswered commits of each partition.
    """

    def __init__(self, application: CommittingApplication, log: CallLog) -> None:
        super().__init__(application, log)
        self.answered: deque[Callable[[], object]] = deque()
        self.calls = GroupMetrics()
        self.committing: Counter[TopicPartition] = Counter()
        self._open_commits = 0
        self._after_commits: Callable[[], None] | None = None
        # The offsets that the listener stored, and the consumer's positions at that time.
        self._stored: dict[TopicPartition, tuple[int | None, OffsetAndMetadata]] = {}

    # ------------------------------------------------------------------------------ commits

    def commit(self, offsets: CommitOffsets | None = None, timeout_ms: int | None = None) -> None:
        """Commit positions to the group, by default of all partitions.

        Raises:
            CommitFailedError: The partitions may now belong to another member.
            RebalanceInProgressError: Poll, then commit again.
        """
        wanted = self._wanted(offsets)
        given = arguments.timeout_ms_or_none(timeout_ms)
        self._open_commits += 1
        try:
            patience_ms = _PATIENCE_MS if given is None else int(given)
            self._commit("commit", wanted, self._committed_one, patience_ms)
        except BaseException:
            self._open_commits -= 1
            raise

    def commit_async(
        self, offsets: CommitOffsets | None = None, on_commit: OnCommit | None = None
    ) -> Future[None]:
        """Commit like `commit`, without waiting for the answer.

        Args:
            offsets: See `commit`.
            on_commit: Called with the offsets, and None or the error, during a later poll.
        """
        wanted = self._wanted(offsets)
        told = arguments.function_or_none(on_commit, "on_commit")
        done: Future[None] = Future()
        end = partial(self._end, done, told, wanted)
        try:
            self._commit("commit_async", wanted, partial(_judge, end), _PATIENCE_MS)
        except KohortError as error:  # the future carries the error
            end(error)
        return done

    def store_offsets(self, offsets: CommitOffsets | ConsumerRecord) -> None:
        """Store offsets of processed records for the next `commit`.

        They are valid until more records of the partition are read. The consumer has
        `enable_auto_offset_store=False`; with other consumers a listener may not call this.

        Raises:
            LocalProtocolError: A partition is not assigned.
        """
        if isinstance(offsets, ConsumerRecord):
            where = TopicPartition(offsets.topic, offsets.partition)
            done = OffsetAndMetadata(offsets.offset + 1, leader_epoch=offsets.leader_epoch)
            offsets = {where: done}
        wanted = arguments.offsets(offsets)
        self._assigned(tuple(wanted))
        self._note(f"store_offsets({_positions(wanted)})")
        for partition, position in wanted.items():
            self._stored[partition] = self._application.positions[partition], position

    def committed(
        self, *partitions: TopicPartition, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; partitions without one are left out."""
        wanted = arguments.partitions(partitions)
        arguments.timeout_ms_or_none(timeout_ms)
        found = {each: self._committed(each) for each in wanted}
        return {each: OffsetAndMetadata(offset) for each, offset in found.items() if offset >= 0}

    def _wanted(self, offsets: CommitOffsets | None) -> Offsets:
        if offsets is not None:
            return arguments.offsets(offsets)
        places = sorted(self._application.positions.items())
        known = ((each, self._done(each, at)) for each, at in places)
        return {each: position for each, position in known if position is not None}

    def _done(self, partition: TopicPartition, at: int | None) -> OffsetAndMetadata | None:
        stored_at, stored = self._stored.get(partition, (None, None))
        if stored is not None and stored_at == at:
            return stored
        return None if at is None else OffsetAndMetadata(at)

    def _commit(
        self, call: str, wanted: Offsets, done: Callable[[bool], None], patience_ms: int
    ) -> None:
        self._note(f"{call}({_positions(wanted)})")
        if not wanted:
            done(True)
            return
        if self._client.machine.generation_id < 0:
            raise CommitFailedError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                "the member is no longer in a group: its partitions may belong to others",
            )
        self._client.machine.commit_request(wanted)  # raises the same errors as the real one
        until = self._client.world.engine.now + patience_ms
        self.committing.update(wanted.keys())
        self._application.look_up_again(wanted)
        self._application.commit(wanted, partial(self._answered, wanted, done), until)

    def _answered(self, wanted: Offsets, done: Callable[[bool], None], stored: bool) -> None:
        self.committing.subtract(wanted.keys())
        self._application.look_up_again(wanted)
        self._note("the commit was stored" if stored else "the commit was refused")
        done(stored)

    def _committed_one(self, _stored: bool) -> None:
        self._open_commits -= 1
        if not self._open_commits and self._after_commits is not None:
            then, self._after_commits = self._after_commits, None
            then()

    def _end(
        self,
        done: Future[None],
        told: OnCommit | None,
        offsets: Offsets,
        error: KohortError | None,
    ) -> None:
        """Complete a future, and let the next poll report it."""
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
        if told is not None:
            self.answered.append(partial(told, offsets, error))
            self._application.wake()

    def when_committed(self, then: Callable[[], None]) -> bool:
        """Call a function once all commits are answered; return False if they already are.

        Args:
            then: Called once, without arguments.
        """
        if not self._open_commits:
            return False
        self._after_commits = then
        return True

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that were given up.

        Args:
            partitions: The partitions.
        """
        for partition in partitions:
            self._stored.pop(partition, None)

    # ----------------------------------------------------------------------------- the group

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        return self._application.topics

    @property
    def client_id(self) -> str:
        """The client id: the member's name in the simulation."""
        return self._client.name

    @property
    def member_id(self) -> str:
        """The member id; empty if it has none."""
        return self._client.machine.member_id

    @property
    def generation_id(self) -> int:
        """Current generation or member epoch; -1 outside a group."""
        return self._client.machine.generation_id

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the consumer's identity in its group.

        Raises:
            CommitFailedError: It is currently not in a group.
        """
        machine = self._client.machine
        if not machine.session.is_member:
            raise CommitFailedError(
                ErrorCode.UNKNOWN_MEMBER_ID, "the consumer is not a member of its group"
            )
        config = machine.config
        return ConsumerGroupMetadata(
            config.group_id, machine.generation_id, machine.member_id, config.group_instance_id
        )

    @property
    def why_out(self) -> str:
        """Why the member was removed from its group; never set in a simulation."""
        return ""

    def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        """Trigger a rebalance (KIP-568).

        Raises:
            LocalProtocolError: Only the coordinator triggers rebalances (KIP-848).
        """
        asked = RejoinAsked(arguments.text(reason, "reason", may_be_empty=True))
        if self._client.protocol.has_epochs:
            raise LocalProtocolError(
                "with group.protocol=consumer the coordinator alone decides when to rebalance"
            )
        self._note("enforce_rebalance()")
        self._client.ask(asked)

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return Kafka's metrics by name, with partitions and calls but without requests."""
        joins, now = not self._client.protocol.has_epochs, self._client.world.engine.now
        assigned = len(self._application.positions)
        return {METRICS_GROUP: self.calls.values(assigned, now, joins=joins)}

    def wakeup(self) -> None:
        """End a waiting poll; here each poll ends as soon as it has a result."""

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: Listens | None = None,
    ) -> None:
        """Not simulated: the seed decides the members' subscriptions.

        Raises:
            NotSimulatedError: Always, unless an argument is wrong.
            ValueError: Neither or both of topics and pattern are given.
        """
        names = arguments.topics(topics)
        if bool(names) == (pattern is not None):
            raise ValueError("give either topics or a pattern")
        is_ours = not self._client.protocol.has_epochs
        arguments.pattern_or_none(pattern, "pattern", is_ours=is_ours)
        arguments.listener_or_none(listener, "listener")
        self._not_simulated("subscribe", "the seed decides the members' subscriptions")

    def assign(self, partitions: Iterable[TopicPartition]) -> NoReturn:
        """Refused, as by the real consumer: its group assigns partitions.

        Raises:
            LocalProtocolError: Always, unless an argument is wrong.
        """
        arguments.partitions(partitions)
        raise LocalProtocolError("assign and subscribe exclude each other: unsubscribe first")

    def from_config(self, settings: Mapping[str, object], *topics: str) -> NoReturn:  # noqa: ARG002 - as in the real one
        """Not simulated: it creates another consumer.

        Raises:
            NotSimulatedError: Always.
        """
        self._not_simulated("from_config", "it creates another consumer, which needs a broker")

    # --------------------------------------------------------- calls that a listener may not make

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> NoReturn:  # noqa: ARG002 - as in the real one
        """Refused: it would wait for the listener.

        Raises:
            LocalProtocolError: Always, unless an argument is wrong.
        """
        arguments.records_or_none(max_records)
        _refuse("poll")

    def poll_arrow(self, timeout_ms: int = 0, max_records: int | None = None) -> NoReturn:  # noqa: ARG002 - as in the real one
        """Refused: it would wait for the listener.

        Raises:
            LocalProtocolError: Always, unless an argument is wrong.
        """
        arguments.records_or_none(max_records)
        _refuse("poll_arrow")

    def poll_membership(self, timeout_ms: int = 0) -> NoReturn:  # noqa: ARG002 - as in the real one
        """Refused: it would wait for the listener.

        Raises:
            LocalProtocolError: Always.
        """
        _refuse("poll_membership")

    def __iter__(self) -> Self:
        """Return the consumer."""
        return self

    def __next__(self) -> NoReturn:
        """Refused: it would wait for the listener.

        Raises:
            LocalProtocolError: Always.
        """
        _refuse("iteration")

    def unsubscribe(self) -> NoReturn:
        """Refused: it would wait for the listener.

        Raises:
            LocalProtocolError: Always.
        """
        _refuse("unsubscribe")

    def close(
        self,
        timeout_s: float = 30.0,  # noqa: ARG002 - as in the real one
        operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,  # noqa: ARG002 - as in the real one
    ) -> NoReturn:
        """Refused: it would wait for the listener.

        Raises:
            LocalProtocolError: Always.
        """
        _refuse("close")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _refuse(call: str) -> NoReturn:
    raise LocalProtocolError(
        f"{call} was called inside a listener of the same consumer, and would wait for it to return"
    )


def _judge(end: Callable[[KohortError | None], None], stored: bool) -> None:
    refused = CommitFailedError(ErrorCode.UNKNOWN_MEMBER_ID, "the commit was refused")
    end(None if stored else refused)


def _positions(offsets: Offsets) -> str:
    return ", ".join(f"{shown([each])}: {at.offset}" for each, at in sorted(offsets.items()))
