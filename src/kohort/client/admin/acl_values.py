"""ACLs in arguments and results of the admin client (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from kohort.client.config.arguments import shown, text

AclResourceType: TypeAlias = Literal[
    "any", "topic", "group", "cluster", "transactional_id", "delegation_token", "user"
]
AclPatternType: TypeAlias = Literal["any", "match", "literal", "prefixed"]
AclOperation: TypeAlias = Literal[
    "any",
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster_action",
    "describe_configs",
    "alter_configs",
    "idempotent_write",
    "create_tokens",
    "describe_tokens",
    "two_phase_commit",
]
AclPermissionType: TypeAlias = Literal["any", "deny", "allow"]

# Kafka's numbers for each word.
RESOURCE_TYPES: Final[Mapping[str, int]] = {
    "any": 1,
    "topic": 2,
    "group": 3,
    "cluster": 4,
    "transactional_id": 5,
    "delegation_token": 6,
    "user": 7,
}
PATTERN_TYPES: Final[Mapping[str, int]] = {"any": 1, "match": 2, "literal": 3, "prefixed": 4}
OPERATIONS: Final[Mapping[str, int]] = {
    "any": 1,
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster_action": 9,
    "describe_configs": 10,
    "alter_configs": 11,
    "idempotent_write": 12,
    "create_tokens": 13,
    "describe_tokens": 14,
    "two_phase_commit": 15,
}
PERMISSION_TYPES: Final[Mapping[str, int]] = {"any": 1, "deny": 2, "allow": 3}
_FOR_FILTERS: Final = ("any", "match")


class AclBinding(Struct, frozen=True, kw_only=True, order=True):
    """One permission or denial.

    Attributes:
        resource_type: "topic", "group", "cluster", "transactional_id", "delegation_token" or
            "user".
        name: Name of the resource; `*` for all resources of the type, `kafka-cluster` for the
            cluster.
        pattern_type: "literal", or "prefixed" for all names that start with `name`.
        principal: The user, such as `User:alice`; `User:*` for all users.
        host: The address that the user connects from; `*` for any.
        operation: The operation, such as "read" or "describe_configs"; "all" for all operations.
        permission_type: "allow" or "deny"; a denial takes precedence.
    """

    resource_type: AclResourceType
    name: str
    pattern_type: AclPatternType = "literal"
    principal: str
    host: str = "*"
    operation: AclOperation
    permission_type: AclPermissionType = "allow"

    def __post_init__(self) -> None:
        """Check the values."""
        _check_words(self, without=_FOR_FILTERS)
        for name in ("name", "principal", "host"):
            text(getattr(self, name), name)


class AclBindingFilter(Struct, frozen=True, kw_only=True):
    """A filter for ACLs; None and "any" match all values.

    Attributes:
        resource_type: See `AclBinding`.
        name: Name of the resource.
        pattern_type: "literal" or "prefixed" for ACLs with exactly that name, "any" for both,
            "match" for all ACLs that apply to a resource of that name.
        principal: See `AclBinding`.
        host: See `AclBinding`.
        operation: See `AclBinding`.
        permission_type: See `AclBinding`.
    """

    resource_type: AclResourceType = "any"
    name: str | None = None
    pattern_type: AclPatternType = "any"
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = "any"
    permission_type: AclPermissionType = "any"

    def __post_init__(self) -> None:
        """Check the values."""
        _check_words(self, without=())
        for name in ("name", "principal", "host"):
            if getattr(self, name) is not None:
                text(getattr(self, name), name)


_WORDS: Final = {
    "resource_type": RESOURCE_TYPES,
    "pattern_type": PATTERN_TYPES,
    "operation": OPERATIONS,
    "permission_type": PERMISSION_TYPES,
}


def _check_words(given: AclBinding | AclBindingFilter, without: tuple[str, ...]) -> None:
    for name, words in _WORDS.items():
        word: object = getattr(given, name)
        allowed = [each for each in words if each not in without]
        if word not in allowed:
            raise ValueError(f"{name} is {shown(word)}; it can be {', '.join(allowed)}")
