"""A group of the consumer protocol: its state in the log, and values derived from it.

All values. A group depends only on the newest record of each key, regardless of the order in which
they were read: a half-compacted log gives the same group as the whole one (B1 to B3). The indexes
(`static`, `owners`, ...) exist only for O(1) answers.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from typing import TypeVar

from immutables import Map
from msgspec import Struct

from kohort.errors import ErrorCode
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.records import GroupLog
from kohort.group.coordinator.refusals import not_found
from kohort.group.coordinator.topics import TopicsImage
from kohort.values import replace
from kohort.wire.messages.consumer_group import AssignmentMetadata, ClientAssignor
from kohort.wire.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    TargetTopicPartitions,
)
from kohort.wire.messages.group_records import GroupRecord
from kohort.wire.messages.groups import DescribedGroup, ListedGroup
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequestGroup
from kohort.wire.messages.txn_requests import TxnOffsetCommitRequest

# Partitions of each topic id: with the epoch in which each was assigned, and without it.
Owned = Map[uuid.UUID, Map[int, int]]
Target = Mapping[uuid.UUID, frozenset[int]]
# For each partition of a topic, its members: one, except in a half-compacted log.
Claims = Map[int, tuple[str, ...]]
Owners = Map[uuid.UUID, Claims]
NOTHING: Owned = Map()
# Kept as stored in the log: there are thousands of these, and few are decoded.
StoredTarget = tuple[TargetTopicPartitions, ...]

LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
# K56: a group starts in epoch 1, whose empty assignment needs no computation.
FIRST_EPOCH = 1
# K35: before this version a client could not understand the answers.
_COMMIT_SINCE = 9

K = TypeVar("K")


class GroupState(Enum):
    """The states of a group (K15); derived, never stored."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(IntEnum):
    """The progress of a member towards its target (K20); numbers as in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class Member(Struct, frozen=True, kw_only=True):
    """A member.

    Attributes:
        member_id: Its id.
        instance_id: Id that its operator configured, None for a dynamic member.
        rack_id: The rack it runs in.
        client_id: From the header of its request.
        client_host: The host that sent it.
        topics: Names of the topics it subscribes to, sorted.
        regex: Regular expression of the topics it subscribes to; empty or None for none.
        rebalance_timeout_ms: Its limit for giving partitions up.
        server_assignor: The server-side assignor that it requests.
        client_assignors: Assignors that it can run itself (K60), in order of preference.
        classic: Its classic state, if it speaks the classic protocol.
        epoch: The epoch that it has to send; -2: a static member that will return.
        previous_epoch: The previous epoch, which it may still send if our answer was lost (K7).
        state: Its progress.
        assigned: Its partitions, each with the epoch of its assignment (KIP-1251).
        revoking: Partitions that it still has but must give up.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str | None = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    client_assignors: tuple[ClientAssignor, ...] = ()
    classic: ClassicMemberMetadata | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Owned = NOTHING
    revoking: Owned = NOTHING

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether it has all partitions of its target in this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch


class ResolvedRegex(Struct, frozen=True):
    """The topics that a regular expression matched.

    Attributes:
        topics: Their names.
        version: The version of the topics it was matched with.
        timestamp: When, in milliseconds since 1970.
    """

    topics: frozenset[str]
    version: int
    timestamp: int


class ConsumerGroup(Struct, frozen=True, kw_only=True):
    """A group.

    Attributes:
        group_id: Its id.
        stored_epoch: Its epoch as written, None before the first time.
        metadata_hash: Hash of its topics' metadata when that epoch began.
        members: Its members by id.
        target: The target of each member, as written; see `target_of`.
        words: User data of the assignor that computed the target, for each member (K61).
        stored_assignment_epoch: The epoch of `target`, as written.
        assignment_timestamp: When it was computed (KIP-1263), 0 if unknown.
        regexes: The topics that its members' regular expressions match.
        has_partition_metadata: Whether a record from before Kafka 4.1 remains to be removed.
        static: Member ids by instance id.
        owners: For each partition, the members that have it or have not given it up yet.
        subscribers: Number of members that name each topic.
        regex_subscribers: Number of members with each regular expression.
        votes: Number of members that request each assignor.
        client_assignors: Number of members that can run each assignor themselves.
        stable_in: Number of members that have reached their target in each epoch.
        classic_members: Number of members that speak the classic protocol.
        classic_support: Number of classic members that support each assignor.
    """

    group_id: str
    stored_epoch: int | None = None
    metadata_hash: int = 0
    members: Map[str, Member] = Map()
    target: Map[str, StoredTarget] = Map()
    words: Map[str, AssignmentMetadata] = Map()
    stored_assignment_epoch: int | None = None
    assignment_timestamp: int = 0
    regexes: Map[str, ResolvedRegex] = Map()
    has_partition_metadata: bool = False
    static: Map[str, str] = Map()
    owners: Owners = Map()
    subscribers: Map[str, int] = Map()
    regex_subscribers: Map[str, int] = Map()
    votes: Map[str, int] = Map()
    client_assignors: Map[str, int] = Map()
    stable_in: Map[int, int] = Map()
    classic_members: int = 0
    classic_support: Map[str, int] = Map()

    # ------------------------------------------------------------------------------- questions

    @property
    def epoch(self) -> int:
        """Return the group's epoch."""
        return FIRST_EPOCH if self.stored_epoch is None else self.stored_epoch

    @property
    def assignment_epoch(self) -> int:
        """Return the epoch of the target assignment."""
        stored = self.stored_assignment_epoch
        return FIRST_EPOCH if stored is None else stored

    @property
    def state(self) -> GroupState:
        """Return its state (K15)."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        reconciled = self.stable_in.get(self.assignment_epoch, 0) == len(self.members)
        return GroupState.STABLE if reconciled else GroupState.RECONCILING

    @property
    def is_in_log(self) -> bool:
        """Return whether the log has any record of it."""
        return (
            self.stored_epoch is not None
            or self.stored_assignment_epoch is not None
            or bool(self.members or self.target or self.regexes)
            or self.has_partition_metadata
        )

    @property
    def topics(self) -> frozenset[str]:
        """Return all topics that its members subscribe to."""
        by_regex = (resolved.topics for resolved in self.regexes.values())
        return frozenset(self.subscribers).union(*by_regex)

    def topics_of(self, member: Member) -> frozenset[str]:
        """Return the topics of one member; an unresolved regex matches none."""
        resolved = self.regexes.get(member.regex) if member.regex else None
        return frozenset(member.topics).union(resolved.topics if resolved else ())

    def target_of(self, member_id: str) -> Target:
        """Return the target of a member."""
        stored = self.target.get(member_id, ())
        return {topic.topic_id: frozenset(topic.partitions) for topic in stored}

    def static_member(self, instance_id: str) -> Member | None:
        """Return the member with an instance id."""
        member_id = self.static.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def preferred_assignor(self, default: str) -> str:
        """Return the assignor that most members request (K11); a tie goes to the first by name."""
        return min(self.votes, key=lambda name: (-self.votes[name], name), default=default)

    # ------------------------------------------------------------------- what all kinds are asked

    def commit_error(
        self, commit: RequestArrived[OffsetCommitRequest], topics: TopicsImage
    ) -> ErrorCode | None:
        """K35, K36: return the error for a commit with a wrong member or epoch.

        Any sender may commit in a group without members.
        """
        request = commit.request
        epoch = request.generation_id_or_member_epoch
        if epoch < 0 and not self.members:
            return None
        member = self.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.classic is None and commit.version < _COMMIT_SINCE:
            return ErrorCode.UNSUPPORTED_VERSION
        if epoch == member.epoch:
            return None
        stale = _stale(member)
        if epoch > member.epoch:
            return stale
        return None if _holds_all(member, request, epoch, topics) else stale

    def transactional_commit_error(self, request: TxnOffsetCommitRequest) -> ErrorCode | None:
        """C53: return the error for a member id or epoch that is not current."""
        epoch, named = request.generation_id, request.member_id or request.group_instance_id
        if epoch < 0 and not (named and self.members):
            return None
        member = self.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return None if epoch == member.epoch else ErrorCode.ILLEGAL_GENERATION

    def fetch_error(self, request: OffsetFetchRequestGroup) -> ErrorCode | None:
        """K37: return the error for a fetch with a wrong member or epoch; it may name no member."""
        if request.member_id is None and request.member_epoch < 0:
            return None
        member = self.members.get(request.member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return None if request.member_epoch == member.epoch else _stale(member)

    def deletion_error(self) -> ErrorCode | None:
        """K37: return the error for a group with members, which is in use."""
        return ErrorCode.NON_EMPTY_GROUP if self.members else None

    def offset_deletion_error(self) -> ErrorCode | None:
        """K37: return no error: positions of topics without readers may always be deleted."""
        return None

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member subscribes to a topic; its positions are then kept (K37)."""
        by_regex = self.regexes.values()
        return topic in self.subscribers or any(topic in each.topics for each in by_regex)

    @property
    def may_expire(self) -> bool:
        """K37: return True: positions of topics without subscribers may always expire."""
        return True

    def unused_since(self, _log: GroupLog) -> int | None:
        """Return None: retention counts from each commit."""
        return None

    def is_in(self, _log: GroupLog) -> bool:
        """Return whether the group is in the log."""
        return True

    def tombstones(self) -> tuple[GroupRecord, ...]:
        """Return the records that delete a group without members, in Kafka's order."""
        group_id = self.group_id
        return (
            GroupRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
            *(regex_tombstone(group_id, regex) for regex in sorted(self.regexes)),
            partition_metadata_tombstone(group_id),
            GroupRecord(ConsumerGroupMetadataKey(group_id=group_id), None),
        )

    def described(self, _log: GroupLog, version: int) -> DescribedGroup:
        """K38: return an error entry, because DescribeGroups supports only classic groups."""
        return not_found(self.group_id, version, f"Group {self.group_id} is not a classic group.")

    def listed(self) -> ListedGroup:
        """K38: return its entry in a list."""
        return ListedGroup(
            group_id=self.group_id,
            protocol_type="consumer",
            group_state=self.state.value,
            group_type="consumer",
        )

    # ----------------------------------------------------------------------------- who belongs

    def with_member(self, member: Member) -> ConsumerGroup:
        """Return the group with a member added, or replaced if the id exists."""
        before = self.members.get(member.member_id)
        changed = self._recounted(before, member)
        return replace(changed, members=self.members.set(member.member_id, member))

    def without_member(self, member_id: str) -> ConsumerGroup:
        """Return the group without a member."""
        before = self.members.get(member_id)
        if before is None:
            return self
        return replace(self._recounted(before, None), members=self.members.delete(member_id))

    def _recounted(self, old: Member | None, new: Member | None) -> ConsumerGroup:
        """Return the group with its indexes updated for one changed member."""
        a, b = old or _NOBODY, new or _NOBODY
        group = self
        named = b.instance_id is None or self.static.get(b.instance_id) == b.member_id
        if a.instance_id != b.instance_id or not named or new is None:
            group = replace(group, static=_renamed(group.static, old, new))
        if a.topics != b.topics:
            group = replace(group, subscribers=_recount(group.subscribers, a.topics, b.topics))
        if a.regex != b.regex:
            counts = _recount(group.regex_subscribers, _one(a.regex), _one(b.regex))
            group = replace(group, regex_subscribers=counts)
        if a.server_assignor != b.server_assignor:
            votes = _recount(group.votes, _one(a.server_assignor), _one(b.server_assignor))
            group = replace(group, votes=votes)
        if a.client_assignors != b.client_assignors:
            counts = _recount(self.client_assignors, _names(a), _names(b))
            group = replace(group, client_assignors=counts)
        if (a.state, a.epoch) != (b.state, b.epoch) or old is None or new is None:
            group = replace(
                group, stable_in=_recount(group.stable_in, _stable_in(old), _stable_in(new))
            )
        if a.classic is not b.classic:
            names = _recount(group.classic_support, _known(a), _known(b))
            number = group.classic_members - (a.classic is not None) + (b.classic is not None)
            group = replace(group, classic_support=names, classic_members=number)
        if a.assigned is not b.assigned or a.revoking is not b.revoking:
            group = replace(group, owners=_reowned(group.owners, a, b))
        return group


_NOBODY = Member(member_id="")


def _one(name: str | None) -> tuple[str, ...]:
    return (name,) if name else ()


def _names(member: Member) -> tuple[str, ...]:
    return tuple(each.name for each in member.client_assignors)


def _known(member: Member) -> frozenset[str]:
    """Return the distinct assignors of a classic member, which may list one twice."""
    protocols = member.classic.supported_protocols if member.classic else ()
    return frozenset(protocol.name for protocol in protocols)


def _stable_in(member: Member | None) -> tuple[int, ...]:
    return (member.epoch,) if member and member.state is MemberState.STABLE else ()


def _renamed(static: Map[str, str], old: Member | None, new: Member | None) -> Map[str, str]:
    """Give an instance id to the member written last, which keeps it when the other leaves."""
    if old is not None and old.instance_id and static.get(old.instance_id) == old.member_id:
        static = static.delete(old.instance_id)
    if new is not None and new.instance_id:
        static = static.set(new.instance_id, new.member_id)
    return static


def _recount(counts: Map[K, int], gone: Iterable[K], come: Iterable[K]) -> Map[K, int]:
    for name in gone:
        left = counts[name] - 1
        counts = counts.set(name, left) if left else counts.delete(name)
    for name in come:
        counts = counts.set(name, counts.get(name, 0) + 1)
    return counts


def _reowned(owners: Owners, old: Member, new: Member) -> Owners:
    for topic_id in {*old.assigned, *old.revoking, *new.assigned, *new.revoking}:
        before = _partitions(old, topic_id)
        after = _partitions(new, topic_id)
        if before == after:
            continue
        claims = owners.get(topic_id, Map())
        claims = _dropped(claims, before - after, old.member_id)
        claims = _claimed(claims, after - before, new.member_id)
        owners = owners.set(topic_id, claims) if claims else owners.delete(topic_id)
    return owners


def _partitions(member: Member, topic_id: uuid.UUID) -> set[int]:
    return {*member.assigned.get(topic_id, ()), *member.revoking.get(topic_id, ())}


def _dropped(claims: Claims, partitions: Iterable[int], member_id: str) -> Claims:
    alone = (member_id,)
    decision = claims.mutate()
    for partition in partitions:
        owners = decision[partition]
        if owners == alone:
            del decision[partition]
        else:
            decision[partition] = tuple(each for each in owners if each != member_id)
    return decision.finish()


def _claimed(claims: Claims, partitions: Iterable[int], member_id: str) -> Claims:
    alone = (member_id,)
    if not claims:
        return Map(dict.fromkeys(partitions, alone))
    return claims.update(
        {
            number: (*claims[number], member_id) if number in claims else alone
            for number in partitions
        }
    )


def _stale(member: Member) -> ErrorCode:
    classic = member.classic is not None
    return ErrorCode.ILLEGAL_GENERATION if classic else ErrorCode.STALE_MEMBER_EPOCH


def _holds_all(
    member: Member, request: OffsetCommitRequest, epoch: int, topics: TopicsImage
) -> bool:
    """K36: return whether a member has had each of these partitions since that epoch.

    So a commit in flight when a new epoch begins is not lost (KIP-1251).
    """
    for topic in request.topics:
        view = topics.by_name.get(topic.name)
        topic_id = view.topic_id if view else topic.topic_id
        assigned, revoking = member.assigned.get(topic_id), member.revoking.get(topic_id)
        for entry in topic.partitions:
            since = assigned.get(entry.partition_index) if assigned else None
            if since is None and revoking:
                since = revoking.get(entry.partition_index)
            if since is None or epoch < since:
                return False
    return True


def regex_tombstone(group_id: str, regex: str) -> GroupRecord:
    """Return the record that deletes a regular expression."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return GroupRecord(key, None)


def partition_metadata_tombstone(group_id: str) -> GroupRecord:
    """Return the tombstone for partition metadata written by Kafka before 4.1."""
    return GroupRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)
