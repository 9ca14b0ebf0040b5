"""DescribeClientQuotas: the quotas of clients (KIP-546)."""

from __future__ import annotations

from kohort.wire.codec.schema import (
    Bool,
    Float64,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    message,
)


class ComponentData(Struct, frozen=True, kw_only=True):
    """The entities whose quotas are requested: exactly this name, the default, or any."""

    entity_type: String
    match_type: Int8
    match: NullableString


@message(api_key=48, versions=(0, 1), flexible_since=1)
class DescribeClientQuotasRequest(
    Request["DescribeClientQuotasResponse"], frozen=True, kw_only=True
):
    """Ask for quotas."""

    components: tuple[ComponentData, ...]
    strict: Bool


class EntityData(Struct, frozen=True, kw_only=True):
    """A user, a client id or an address that has quotas."""

    entity_type: String
    entity_name: NullableString


class ValueData(Struct, frozen=True, kw_only=True):
    """One quota."""

    key: String
    value: Float64


class EntryData(Struct, frozen=True, kw_only=True):
    """The quotas of one entity."""

    entity: tuple[EntityData, ...]
    values: tuple[ValueData, ...]


@message(api_key=48, versions=(0, 1), flexible_since=1)
class DescribeClientQuotasResponse(Message, frozen=True, kw_only=True):
    """The quotas."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: NullableString = None
    entries: tuple[EntryData, ...] | None
