"""A live draft group: consumers, parked requests, state. All values.

The consumers' partitions are log state instead, written with the record that makes the group
steady.
"""

from __future__ import annotations

from immutables import Map
from msgspec import Struct

from kohort.errors import ErrorCode
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.records import GroupLog, GroupsPart
from kohort.group.coordinator.session import LiveGroup, Parked
from kohort.group.coordinator.topics import TopicsImage
from kohort.group.machine import State
from kohort.group.subscription import (
    PROTOCOL_TYPE,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.messages.draft_records import DraftGroupKey
from kohort.wire.messages.group_records import GroupRecord
from kohort.wire.messages.groups import DescribedGroup, DescribedGroupMember, ListedGroup
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequestGroup
from kohort.wire.messages.txn_requests import TxnOffsetCommitRequest


class DraftState(State):
    """The states of a group, by the design's names; the first one stands for a missing group."""

    NONE = "None"
    PREPARE_FOR_REBALANCE = "PrepareForRebalance"
    REBALANCING = "Rebalancing"
    STEADY = "Steady"


class Consumer(Struct, frozen=True, kw_only=True):
    """A consumer of a draft group.

    Attributes:
        consumer_id: Id that the coordinator assigned.
        client_id: From the header of its join.
        host: The host that it reports; part of its id.
        session_timeout_ms: How long it may be silent.
        heartbeat_frequency: How many heartbeats it sends in that time.
        topics: The topics it subscribes to, in order.
    """

    consumer_id: str
    client_id: str
    host: str
    session_timeout_ms: int
    heartbeat_frequency: int
    topics: tuple[str, ...]


class Newcomer(Struct, frozen=True):
    """A member that joined without an id and gets one when the group rebalances."""

    consumer: Consumer
    parked: Parked


class StoredDraftGroup(Struct, frozen=True):
    """A group in the log.

    Attributes:
        generation: Its generation.
        next_sequence: Number in the next consumer id.
        assignor: The assignor that assigned the partitions.
        topics: The topics' partition counts at that time.
        consumers: The consumers by id.
        owned: The partitions of each consumer.
    """

    generation: int
    next_sequence: int
    assignor: str
    topics: Map[str, int]
    consumers: Map[str, Consumer]
    owned: Map[str, tuple[TopicPartition, ...]]


STORED: GroupsPart[StoredDraftGroup] = GroupsPart("draft")


class DraftGroup(LiveGroup, frozen=True, kw_only=True):
    """A draft group.

    Attributes:
        state: Its state.
        next_sequence: Number in the next consumer id; never used twice.
        consumers: Consumers by their id.
        newcomers: Consumers that wait for an id, in the order in which they joined.
        joining: Consumers whose JoinGroup is parked.
        job: Number of the running assignment, counted within the generation.
    """

    state: DraftState = DraftState.NONE
    next_sequence: int = 1
    consumers: Map[str, Consumer] = Map()
    newcomers: tuple[Newcomer, ...] = ()
    joining: Map[str, Parked] = Map()
    job: int = 0

    @property
    def all_joined(self) -> bool:
        """Return whether every consumer of the present generation has rejoined."""
        return len(self.joining) == len(self.consumers)

    @property
    def longest_session_ms(self) -> int:
        """Return the longest session timeout of the consumers."""
        return max((each.session_timeout_ms for each in self.consumers.values()), default=0)

    @property
    def topics(self) -> frozenset[str]:
        """Return all topics with a subscriber."""
        return frozenset(topic for each in self.consumers.values() for topic in each.topics)

    def sorted_consumers(self) -> list[Consumer]:
        """Return the consumers in order of id; the order of a map varies between processes."""
        return [consumer for _, consumer in sorted(self.consumers.items())]

    def with_consumer(self, consumer: Consumer) -> DraftGroup:
        """Return the group with a consumer added, or replaced if the id exists."""
        return replace(self, consumers=self.consumers.set(consumer.consumer_id, consumer))

    def without_consumer(self, consumer_id: str) -> DraftGroup:
        """Return the group without a consumer."""
        joining = self.joining
        if consumer_id in joining:
            joining = joining.delete(consumer_id)
        return replace(self, consumers=self.consumers.delete(consumer_id), joining=joining)

    def park(self, consumer_id: str, parked: Parked) -> DraftGroup:
        """Park a consumer's join until all have joined."""
        return replace(self, joining=self.joining.set(consumer_id, parked))

    def with_ids(self) -> DraftGroup:
        """Give every newcomer its id, `<group>-<host>-<sequence>` (D9)."""
        group = self
        for number, newcomer in enumerate(self.newcomers, self.next_sequence):
            consumer_id = f"{self.group_id}-{newcomer.consumer.host}-{number}"
            group = group.with_consumer(replace(newcomer.consumer, consumer_id=consumer_id))
            group = group.park(consumer_id, newcomer.parked)
        sequence = self.next_sequence + len(self.newcomers)
        return replace(group, newcomers=(), next_sequence=sequence)

    # ------------------------------------------------------------------- what all kinds are asked

    def commit_error(
        self, commit: RequestArrived[OffsetCommitRequest], _topics: TopicsImage
    ) -> ErrorCode | None:
        """D6, D7: return the error for a commit: it needs a current consumer in a steady group.

        If the consumer missed a rebalance, others may own its partitions now. Without members, a
        tool may reset the positions.
        """
        request, state = commit.request, self.state
        generation = request.generation_id_or_member_epoch
        if state is DraftState.NONE and not request.member_id and generation < 0:
            return None
        if request.member_id not in self.consumers:
            return ErrorCode.UNKNOWN_MEMBER_ID
        current = state is DraftState.STEADY and generation == self.generation
        return None if current else ErrorCode.ILLEGAL_GENERATION

    def transactional_commit_error(self, request: TxnOffsetCommitRequest) -> ErrorCode | None:
        """Return the error for a named consumer that is not current (D6)."""
        if request.generation_id < 0 and not request.member_id:
            return None
        if request.member_id not in self.consumers:
            return ErrorCode.UNKNOWN_MEMBER_ID
        current = self.state is DraftState.STEADY and request.generation_id == self.generation
        return None if current else ErrorCode.ILLEGAL_GENERATION

    def fetch_error(self, _request: OffsetFetchRequestGroup) -> ErrorCode | None:
        """Return no error: any client may fetch the positions of a draft group."""
        return None

    def deletion_error(self) -> ErrorCode | None:
        """Return the error for a group with consumers (KIP-229, which the design does not have)."""
        return None if self.state is DraftState.NONE else ErrorCode.NON_EMPTY_GROUP

    def offset_deletion_error(self) -> ErrorCode | None:
        """Return no error: positions of topics without readers may be deleted (KIP-496)."""
        return None

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a consumer reads the topic."""
        return any(topic in each.topics for each in self.consumers.values())

    @property
    def may_expire(self) -> bool:
        """Return False: the design has no retention, so positions stay until they are deleted."""
        return False

    def unused_since(self, _log: GroupLog) -> int | None:
        """Return None: nothing expires."""
        return None

    def is_in(self, log: GroupLog) -> bool:
        """Return whether it was written to the log."""
        return self.group_id in STORED.of(log)

    def tombstones(self) -> tuple[GroupRecord, ...]:
        """Return the record that deletes it (D16)."""
        return (GroupRecord(DraftGroupKey(group=self.group_id), None),)

    def described(self, log: GroupLog, _version: int) -> DescribedGroup:
        """Return the group with its consumers; partitions are shown only while it is steady."""
        stored = STORED.of(log).get(self.group_id) if self.state is DraftState.STEADY else None
        return DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=self.group_id,
            group_state=self._shown_state,
            protocol_type=PROTOCOL_TYPE,
            protocol_data=stored.assignor if stored else "",
            members=tuple(_described(each, stored) for each in self.sorted_consumers()),
        )

    def listed(self) -> ListedGroup:
        """Return its entry in a list."""
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=PROTOCOL_TYPE,
            group_state=self._shown_state,
            group_type="draft",
        )

    @property
    def _shown_state(self) -> str:
        """Return the name that tools use for a group without members."""
        return "Empty" if self.state is DraftState.NONE else self.state.value


LIVE: GroupsPart[DraftGroup] = GroupsPart("draft")
"""Groups with consumers, or waiting for consumers."""


def _described(consumer: Consumer, stored: StoredDraftGroup | None) -> DescribedGroupMember:
    subscription = Subscription(topics=frozenset(consumer.topics))
    owned = stored.owned[consumer.consumer_id] if stored else ()
    return DescribedGroupMember(
        member_id=consumer.consumer_id,
        client_id=consumer.client_id,
        client_host=consumer.host,
        member_metadata=encode_subscription(subscription) if stored else b"",
        member_assignment=encode_assignment(owned) if stored else b"",
    )


def loaded_group(group_id: str, stored: StoredDraftGroup) -> DraftGroup:
    """Return the live group for a stored one: steady if it has consumers."""
    return DraftGroup(
        group_id=group_id,
        state=DraftState.STEADY if stored.consumers else DraftState.NONE,
        generation=stored.generation,
        next_sequence=stored.next_sequence,
        consumers=stored.consumers,
    )
