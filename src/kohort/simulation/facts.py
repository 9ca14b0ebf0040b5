"""What the checkers are told: each fact says what one event touched.

Facts live for as long as they are checked and there are several for each event, so they are not
frozen: that would double what they cost. `about` is what a checker may choose by.
"""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from msgspec import Struct

from kohort.group.coordinator.events import RequestArrived, ShardEvent
from kohort.group.events import GroupEvent, Ownership
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.messages.group_records import GroupRecord, OffsetCommitKey
from kohort.wire.schema import Message

if TYPE_CHECKING:
    from kohort.group.coordinator.classic.group import ClassicGroup
    from kohort.group.coordinator.state import LogState, ShardSession
    from kohort.group.effects import Effects
    from kohort.group.member.events import MemberEvent
    from kohort.simulation.client import Client
    from kohort.simulation.coordinator import Node


class Answered(Struct):
    """The coordinator answered a request.

    Attributes:
        node: The node that did.
        arrived: The request.
        response: The answer.
        repeated: Whether the same request was answered before.
    """

    node: Node
    arrived: RequestArrived[Message]
    response: Message
    repeated: bool

    @property
    def about(self) -> type:
        """The class of the request."""
        return type(self.arrived.request)


class Recorded(Struct):
    """Records were appended to the group log, and applied."""

    node: Node
    records: tuple[GroupRecord, ...]

    @property
    def about(self) -> type:
        """The class of all keys if these are positions, else that of records."""
        positions = all(isinstance(each.key, OffsetCommitKey) for each in self.records)
        return OffsetCommitKey if positions else GroupRecord


class Decided(Struct):
    """The coordinator dealt with an event, and something of its session may have changed."""

    node: Node
    event: ShardEvent
    effects: Effects[ShardSession]

    @property
    def about(self) -> type:
        """The class of the request that arrived, or of the event if it is none."""
        return _about(self.event)


class Stepped(Struct):
    """The coordinator dealt with an event; what it led to is installed, nobody is answered yet.

    Attributes:
        node: The node that did, as it is now.
        event: The event.
        session: Its session as it was before.
        log: What its log added up to before.
        effects: What the event led to.
        group: The classic group that was looked for last, by its id: several rules ask for it.
    """

    node: Node
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

    node: Node
    observed: tuple[GroupEvent, ...]


class Moved(Struct):
    """A member dealt with an event, and is another one, or says more than that it lives.

    Attributes:
        client: The member.
        sends: What it sends.
        observed: What it reports.
    """

    about: ClassVar[type] = NoneType

    client: Client
    sends: tuple[Message, ...]
    observed: tuple[GroupEvent, ...]


class Told(Struct):
    """A member dealt with an event.

    Attributes:
        client: The member, as it is now.
        event: The event.
        before: Its session before.
        effects: What the event led to.
        now: The time by its own clock.
    """

    client: Client
    event: MemberEvent
    before: object
    effects: Effects[object]
    now: int

    @property
    def about(self) -> type:
        """The class of the session, by which protocols are told apart."""
        return type(self.before)


class Refused(Struct):
    """A member refused a call of its application.

    Attributes:
        client: The member.
        event: The call.
    """

    about: ClassVar[type] = NoneType

    client: Client
    event: MemberEvent


class Called(Struct):
    """A call into an application begins or has ended.

    Attributes:
        client: Whose application.
        change: Which call.
        partitions: About which partitions.
        begins: Whether it begins.
    """

    about: ClassVar[type] = NoneType

    client: Client
    change: Ownership
    partitions: frozenset[TopicPartition]
    begins: bool


class Delivered(Struct):
    """An application got records.

    Attributes:
        client: Whose application.
        partition: From which partition.
        first: Offset of the first record.
        end: Offset after the last one.
    """

    about: ClassVar[type] = NoneType

    client: Client
    partition: TopicPartition
    first: int
    end: int


class Positioned(Struct):
    """An application learned where to begin in a partition: the committed offset, -1 for none."""

    about: ClassVar[type] = NoneType

    client: Client
    partition: TopicPartition
    offset: int


class Committing(Struct):
    """An application asks for positions to be stored."""

    about: ClassVar[type] = NoneType

    client: Client
    offsets: dict[TopicPartition, OffsetAndMetadata]


class Looked(Struct):
    """Time to look at everything."""

    about: ClassVar[type] = NoneType


class Settled(Struct):
    """Faults have stopped, and the time in which the group must have converged is over."""

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
