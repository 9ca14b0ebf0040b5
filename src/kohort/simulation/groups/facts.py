"""The input of the checkers: each fact describes the effect of one event.

Facts exist only while they are checked, and there are several for each event. They are not frozen,
because that would double their cost. Checkers may select facts by `about`.
"""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from msgspec import Struct

from kohort.group.coordinator.events import RequestArrived, ShardEvent
from kohort.group.events import GroupEvent, Ownership
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.codec.schema import Message
from kohort.wire.messages.group_records import GroupRecord, OffsetCommitKey

if TYPE_CHECKING:
    from kohort.group.coordinator.classic.group import ClassicGroup
    from kohort.group.coordinator.state import LogState, ShardSession
    from kohort.group.effects import Effects
    from kohort.group.member.events import MemberEvent
    from kohort.simulation.groups.base import BaseClient, BaseNode


class Answered(Struct):
    """The coordinator answered a request.

    Attributes:
        node: The node that did.
        arrived: The request.
        response: The answer.
        repeated: Whether the same request was answered before.
    """

    node: BaseNode
    arrived: RequestArrived[Message]
    response: Message
    repeated: bool

    @property
    def about(self) -> type:
        """The class of the request."""
        return type(self.arrived.request)


class Recorded(Struct):
    """Records were appended to the group log, and applied."""

    node: BaseNode
    records: tuple[GroupRecord, ...]

    @property
    def about(self) -> type:
        """Return the key class if all records are positions, else the class of records."""
        positions = all(isinstance(each.key, OffsetCommitKey) for each in self.records)
        return OffsetCommitKey if positions else GroupRecord


class Decided(Struct):
    """The coordinator handled an event, and its session may have changed."""

    node: BaseNode
    event: ShardEvent
    effects: Effects[ShardSession]

    @property
    def about(self) -> type:
        """The class of the request that arrived, or of the event if it is none."""
        return _about(self.event)


class Stepped(Struct):
    """The coordinator handled an event; the session is installed, and no answer is sent yet.

    Attributes:
        node: The node that did, as it is now.
        event: The event.
        session: Its session before the event.
        log: Its log state before the event.
        effects: The effects of the event.
        group: The last classic group looked up, by its id, cached because several rules need it.
    """

    node: BaseNode
    event: ShardEvent
    session: ShardSession
    log: LogState
    effects: Effects[ShardSession]
    group: tuple[str, ClassicGroup | None] | None = None

    @property
    def about(self) -> type:
        """The class of the request that arrived, or of the event if it is none."""
        return _about(self.event)


class Loaded(Struct):
    """A node has read the log and is ready.

    Attributes:
        node: The node.
        observed: What it reports.
    """

    about: ClassVar[type] = NoneType

    node: BaseNode
    observed: tuple[GroupEvent, ...]


class Moved(Struct):
    """A member handled an event, and has changed or sends more than a heartbeat.

    Attributes:
        client: The member.
        sends: The requests that it sends.
        observed: The events that it reports.
    """

    about: ClassVar[type] = NoneType

    client: BaseClient
    sends: tuple[Message, ...]
    observed: tuple[GroupEvent, ...]


class Told(Struct):
    """A member handled an event.

    Attributes:
        client: The member after the event.
        event: The event.
        before: Its session before the event.
        effects: The effects of the event.
        now: The time by its own clock.
    """

    client: BaseClient
    event: MemberEvent
    before: object
    effects: Effects[object]
    now: int

    @property
    def about(self) -> type:
        """Return the class of the session, which depends on the protocol."""
        return type(self.before)


class Refused(Struct):
    """A member refused a call of its application.

    Attributes:
        client: The member.
        event: The call.
    """

    about: ClassVar[type] = NoneType

    client: BaseClient
    event: MemberEvent


class Called(Struct):
    """A call into an application begins or has ended.

    Attributes:
        client: The member of the application.
        change: The kind of call.
        partitions: Its partitions.
        begins: Whether it begins.
    """

    about: ClassVar[type] = NoneType

    client: BaseClient
    change: Ownership
    partitions: frozenset[TopicPartition]
    begins: bool


class Delivered(Struct):
    """An application got records.

    Attributes:
        client: The member of the application.
        partition: The partition of the records.
        first: Offset of the first record.
        end: Offset after the last one.
    """

    about: ClassVar[type] = NoneType

    client: BaseClient
    partition: TopicPartition
    first: int
    end: int


class Positioned(Struct):
    """An application fetched a partition's committed offset, -1 for none."""

    about: ClassVar[type] = NoneType

    client: BaseClient
    partition: TopicPartition
    offset: int


class Committing(Struct):
    """An application commits positions."""

    about: ClassVar[type] = NoneType

    client: BaseClient
    offsets: dict[TopicPartition, OffsetAndMetadata]


class Looked(Struct):
    """A full check is due."""

    about: ClassVar[type] = NoneType


class Settled(Struct):
    """Faults have stopped, and the group must have converged by now."""

    about: ClassVar[type] = NoneType

    bound_ms: int


def _about(event: ShardEvent) -> type:
    return type(event.request) if isinstance(event, RequestArrived) else type(event)


Fact: TypeAlias = (
    Answered
    | Recorded
    | Decided
    | Stepped
    | Loaded
    | Moved
    | Told
    | Refused
    | Called
    | Delivered
    | Positioned
    | Committing
    | Looked
    | Settled
)
