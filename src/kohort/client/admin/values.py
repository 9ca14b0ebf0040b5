"""What the admin client takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, TypeAlias, get_args

from msgspec import Struct, field

from kohort.client.config.arguments import mapping, shown, text, whole
from kohort.client.net.metadata import Node
from kohort.types import TopicPartition

BROKER_DEFAULT = -1


class NewTopic(Struct, frozen=True):
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

    def __post_init__(self) -> None:
        """Check the values."""
        text(self.name, "name", may_be_empty=True)  # which names are legal the broker says
        whole(self.partitions, "partitions", -(2**31), 2**31 - 1)
        whole(self.replication_factor, "replication_factor", -(2**15), 2**15 - 1)
        for name, value in mapping(self.configs, "configs").items():
            text(value, f"configs[{text(name, 'a key of configs')!r}]", may_be_empty=True)


ResourceType: TypeAlias = Literal["topic", "broker", "broker_logger", "client_metrics", "group"]

ConfigChange: TypeAlias = (
    str | tuple[Literal["set", "delete", "append", "subtract"], str | None] | None
)
"""What becomes of a setting: a new value, None for its default, or an operation of KIP-339."""


class ConfigResource(Struct, frozen=True):
    """Something that has settings.

    Attributes:
        resource_type: "topic", "broker", "broker_logger", "client_metrics" or "group".
        name: Name of the topic, id of the broker, id of the group; an empty broker stands for the
            settings that all brokers share.
    """

    resource_type: ResourceType
    name: str

    def __post_init__(self) -> None:
        """Check the values."""
        types = get_args(ResourceType)
        if self.resource_type not in types:
            raise ValueError(
                f"resource_type is {shown(self.resource_type)}; it can be {', '.join(types)}"
            )
        text(self.name, "name", may_be_empty=True)
        if self.is_broker and self.name and not (self.name.isascii() and self.name.isdigit()):
            raise ValueError(f"name is {shown(self.name)}; a broker's name is its id")

    @property
    def is_broker(self) -> bool:
        """Whether it is a broker, or a broker's loggers."""
        return self.resource_type in ("broker", "broker_logger")

    @property
    def node_id(self) -> int | None:
        """The broker that has to be asked; None when any will do."""
        return int(self.name) if self.is_broker and self.name else None


class ConfigEntry(Struct, frozen=True):
    """One setting of a resource.

    Attributes:
        name: Its name.
        value: Its value; None when it is sensitive, or has none.
        source: Where the value comes from: "default", "static_broker", "dynamic_topic" and so on.
        is_read_only: Whether it can only be set in the broker's own file.
        is_sensitive: Whether the broker keeps its value to itself.
        type: Kafka's type of the value: "boolean", "int", "list" and so on.
    """

    name: str
    value: str | None
    source: str
    is_read_only: bool = False
    is_sensitive: bool = False
    type: str = "unknown"

    @property
    def is_default(self) -> bool:
        """Whether it is unset."""
        return self.source == "default"


OffsetSpec: TypeAlias = Literal["earliest", "latest"] | int | datetime
"""Where a partition is to be read from: one of its ends, an offset, or a time."""


class OffsetReset(Struct, frozen=True):
    """The offset that was found for a partition.

    Attributes:
        offset: The next offset to read.
        note: Why it is another one than was asked for; empty when it is that one.
    """

    offset: int
    note: str = ""


class GroupListing(Struct, frozen=True):
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


class MemberDescription(Struct, frozen=True):
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
        user_data: What its assignor told the leader when it joined; None: nothing, or not in a
            classic group.
        assigned_user_data: What the leader's assignor told its assignor; likewise.
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
    user_data: bytes | None = None
    assigned_user_data: bytes | None = None


class GroupDescription(Struct, frozen=True):
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
        coordinator: The broker that coordinates it.
    """

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[MemberDescription, ...]
    type: str = "classic"
    epoch: int | None = None
    target_epoch: int | None = None
    coordinator: Node | None = None
