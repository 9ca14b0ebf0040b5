"""Arguments and results of the admin client."""

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
        partitions: Number of partitions; -1 for the broker's default.
        replication_factor: Number of replicas; -1 for the broker's default.
        configs: Settings, by Kafka's names.
    """

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the values."""
        text(self.name, "name", may_be_empty=True)  # the broker decides which names are legal
        whole(self.partitions, "partitions", -(2**31), 2**31 - 1)
        whole(self.replication_factor, "replication_factor", -(2**15), 2**15 - 1)
        for name, value in mapping(self.configs, "configs").items():
            text(value, f"configs[{text(name, 'a key of configs')!r}]", may_be_empty=True)


ResourceType: TypeAlias = Literal["topic", "broker", "broker_logger", "client_metrics", "group"]

ConfigChange: TypeAlias = (
    str | tuple[Literal["set", "delete", "append", "subtract"], str | None] | None
)
"""A change of a setting: a new value, None for its default, or an operation of KIP-339."""


class ConfigResource(Struct, frozen=True):
    """A resource that has settings.

    Attributes:
        resource_type: "topic", "broker", "broker_logger", "client_metrics" or "group".
        name: Name of the topic, id of the broker, or id of the group; an empty broker id means the
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
        """Whether it is a broker or a broker's loggers."""
        return self.resource_type in ("broker", "broker_logger")

    @property
    def node_id(self) -> int | None:
        """The broker that has to be asked; None when any broker can answer."""
        return int(self.name) if self.is_broker and self.name else None


class ConfigEntry(Struct, frozen=True):
    """One setting of a resource.

    Attributes:
        name: Its name.
        value: Its value; None when it is sensitive, or has none.
        source: Where the value comes from: "default", "static_broker", "dynamic_topic" and so on.
        is_read_only: Whether it can only be set in the broker's own file.
        is_sensitive: Whether the broker hides its value.
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
        """Whether the setting is unset."""
        return self.source == "default"


OffsetSpec: TypeAlias = Literal["earliest", "latest"] | int | datetime
"""A position in a partition: its start or end, an offset, or a time."""


class OffsetReset(Struct, frozen=True):
    """The offset that was found for a partition.

    Attributes:
        offset: The next offset to read.
        note: Why it differs from the requested position; empty if it does not.
    """

    offset: int
    note: str = ""


class GroupListing(Struct, frozen=True):
    """A group in a list.

    Attributes:
        group_id: Its id.
        protocol_type: "consumer" for consumer groups; empty when it has only offsets.
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
        group_instance_id: Id of a static member (KIP-345).
        client_id: Name of the client.
        client_host: Host that it connects from.
        topics: Its subscribed topics.
        assignment: Its current partitions.
        type: Its protocol, "classic" or "consumer"; a group of KIP-848 may have both.
        epoch: Its epoch (KIP-848); None in a classic group.
        target_assignment: Its target partitions (KIP-848); None in a classic group.
        pattern: Its subscribed regular expression (KIP-848).
        rack_id: Its rack, if it has one (KIP-848).
        user_data: User data from its assignor to the leader when it joined; None without user data,
            or outside a classic group.
        assigned_user_data: User data from the leader's assignor to its assignor; None as above.
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
        assignor: Name of the assignor that the group agreed on, or that the broker uses.
        members: Its members.
        type: The group's protocol, "classic" or "consumer".
        epoch: The group's epoch (KIP-848); None for a classic group.
        target_epoch: The epoch of the target assignment; behind `epoch` while a new one is computed
            (KIP-848). None for a classic group.
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
