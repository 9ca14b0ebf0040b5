"""The interfaces of a kind of group and of a group, which the rest of the package uses.

`kinds` lists the kinds, and `dispatch` routes each request to one of them. A new kind needs a
folder with a `Kind`, and a line in that list.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from kohort.errors import ErrorCode
from kohort.group.coordinator.events import LoadFinished, RequestArrived, Unload
from kohort.group.coordinator.records import GroupLog, L
from kohort.group.coordinator.session import SessionState, ShardDecision
from kohort.group.coordinator.topics import TopicsImage
from kohort.wire.codec.schema import Message
from kohort.wire.messages.group_records import GroupRecord
from kohort.wire.messages.groups import DescribedGroup, ListedGroup
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequestGroup
from kohort.wire.messages.txn_requests import TxnOffsetCommitRequest

Serve: TypeAlias = Callable[[ShardDecision, str, object], None]
"""Runs a request (`RequestArrived`) or a deadline on the group with an id."""

Answer: TypeAlias = Callable[[ShardDecision, RequestArrived[Message]], None]
"""Answers a request that is not for one group."""

Hear: TypeAlias = Callable[[ShardDecision, object], None]
"""Handles an event of the shard."""


class Fold(Protocol):
    """Applies a record to the log state. A tombstone for an unknown key is legal (B2)."""

    def __call__(self, log: L, record: GroupRecord) -> L:
        """Return the log state after the record."""


class Api(NamedTuple):
    """A request type of one kind's protocol, for one group.

    Attributes:
        check: Returns the error for a request that no group can accept, else None.
        elsewhere: Returns the answer if the group's kind does not serve the request.
    """

    check: Callable[[RequestArrived[Message]], ErrorCode | None]
    elsewhere: Callable[[RequestArrived[Message]], Message]


class Group(Protocol):
    """A group of any kind, as the shared services see it (`services`)."""

    @property
    def group_id(self) -> str:
        """Return its id."""

    @property
    def state(self) -> Enum:
        """Return its state; the value is the name that Kafka's tools print."""

    def commit_error(
        self, commit: RequestArrived[OffsetCommitRequest], topics: TopicsImage
    ) -> ErrorCode | None:
        """Return the error for a commit, None to store it."""

    def transactional_commit_error(self, request: TxnOffsetCommitRequest) -> ErrorCode | None:
        """Return the error for a commit in a transaction, None to store it (C53)."""

    def fetch_error(self, request: OffsetFetchRequestGroup) -> ErrorCode | None:
        """Return the error for a fetch of positions, None to answer it."""

    def deletion_error(self) -> ErrorCode | None:
        """Return the error for deleting the group, None to delete it."""

    def offset_deletion_error(self) -> ErrorCode | None:
        """Return the error for deleting positions, None to delete those of unread topics."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member reads or may read a topic, so that its positions stay."""

    @property
    def may_expire(self) -> bool:
        """Return whether old positions of topics without readers may expire now (C60)."""

    def unused_since(self, log: GroupLog) -> int | None:
        """Return the time of day when the last member left; None: count from each commit."""

    def is_in(self, log: GroupLog) -> bool:
        """Return whether the log has the group, and not only its positions."""

    def tombstones(self) -> tuple[GroupRecord, ...]:
        """Return the records that delete the group, without its positions."""

    def described(self, log: GroupLog, version: int) -> DescribedGroup:
        """Return its description for a version of DescribeGroups."""

    def listed(self) -> ListedGroup:
        """Return its entry in ListGroups."""


class Kind(Protocol):
    """A kind of group: the coordinator's side of one group protocol.

    A group can be converted from one kind to another. The package `migration` does that, and only
    it depends on two kinds.
    """

    @property
    def name(self) -> str:
        """Return its name, as ListGroups shows it."""

    @property
    def apis(self) -> Mapping[type[Message], Api]:
        """Return the requests of its protocol; if the group is missing, they go to this kind."""

    @property
    def serves(self) -> Mapping[type[object], Serve]:
        """Return the function for each request and each deadline of a group of this kind."""

    @property
    def answers(self) -> Mapping[type[Message], Answer]:
        """Return the requests that are not for one group."""

    @property
    def hears(self) -> Mapping[type[object], Hear]:
        """Return the events of the shard that concern its groups: jobs done, topics changed."""

    @property
    def folds(self) -> Mapping[type[Message], Fold]:
        """Return the records that it reads, by the class of their key."""

    def lives(self, session: SessionState, group_id: str) -> bool:
        """Return whether the session has this group, which then belongs to no other kind."""

    def has(self, session: SessionState, log: GroupLog, group_id: str) -> bool:
        """Return whether a group is of this kind."""

    def ids(self, session: SessionState, log: GroupLog) -> Collection[str]:
        """Return the ids of its groups."""

    def group(self, session: SessionState, log: GroupLog, group_id: str) -> Group:
        """Return a group; a missing one is in the kind's state for missing groups."""

    def load(self, shard: ShardDecision, group_id: str, event: LoadFinished) -> None:
        """Restore a group that is in the log (C72)."""

    def unload(self, shard: ShardDecision, event: Unload) -> None:
        """Answer parked requests (C73)."""
