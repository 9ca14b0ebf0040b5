"""What the admin client takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from kohort.types import TopicPartition
from kohort.values import dataclass

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
        assignment: The partitions it has.
        type: The protocol it speaks, "classic" or "consumer"; a group of KIP-848 may have both.
        epoch: Its epoch (KIP-848); None in a classic group.
        target_assignment: The partitions it is to have (KIP-848); None in a classic group.
        pattern: The regular expression it subscribes to (KIP-848).
        rack_id: Where it runs, if it says so (KIP-848).
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    topics: frozenset[str]
    assignment: frozenset[TopicPartition]
    type: str = "classic"
    epoch: int | None = None
    target_assignment: frozenset[TopicPartition] | None = None
    pattern: str | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members.

    Attributes:
        group_id: Its id.
        state: As Kafka's tools print it.
        protocol_type: "consumer" for consumer groups.
        assignor: Name of the assignor the group agreed on, or that the broker uses for it.
        members: Its members.
        type: The group's protocol, "classic" or "consumer".
        epoch: The group's epoch (KIP-848); None for a classic group.
        target_epoch: The epoch that the target assignment was made for; behind `epoch` while a new
            one is being made (KIP-848). None for a classic group.
    """

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[MemberDescription, ...]
    type: str = "classic"
    epoch: int | None = None
    target_epoch: int | None = None
