"""What the admin client takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kohort.types import TopicPartition

BROKER_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    Attributes:
        name: Its name.
        partitions: How many partitions; -1 is the broker's default.
        replication_factor: How many copies; -1 is the broker's default.
        configs: Settings by Kafka's names.
    """

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list.

    Attributes:
        group_id: Its id.
        protocol_type: "consumer" for consumer groups; empty when it has offsets only.
        state: As Kafka's tools print it.
        type: "classic" or "consumer".
    """

    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group.

    Attributes:
        member_id: Its id.
        group_instance_id: Of a static member (KIP-345).
        client_id: What the client calls itself.
        client_host: Where it connects from.
        topics: What it subscribes to.
        assignment: The partitions it was given.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    topics: frozenset[str]
    assignment: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members.

    Attributes:
        group_id: Its id.
        state: As Kafka's tools print it.
        protocol_type: "consumer" for consumer groups.
        assignor: Name of the assignor the group agreed on.
        members: Its members.
    """

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[MemberDescription, ...]
