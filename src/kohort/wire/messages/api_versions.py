"""ApiVersions: the requests a broker answers, and their versions (KIP-35, KIP-511)."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    IGNORABLE,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    Request,
    String,
    Struct,
    Tag,
    message,
    since,
)


@message(api_key=18, versions=(0, 4), flexible_since=3)
class ApiVersionsRequest(Request["ApiVersionsResponse"], frozen=True, kw_only=True):
    """Ask which APIs a broker serves; the first request on a connection."""

    client_software_name: Annotated[String, since(3), IGNORABLE] = ""
    client_software_version: Annotated[String, since(3), IGNORABLE] = ""


class ApiVersion(Struct, frozen=True, kw_only=True):
    """One API and the versions a broker serves."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


class SupportedFeatureKey(Struct, frozen=True, kw_only=True):
    """A feature and the levels a broker supports (KIP-584)."""

    name: String
    min_version: Int16
    max_version: Int16


class FinalizedFeatureKey(Struct, frozen=True, kw_only=True):
    """A feature level the whole cluster has agreed on."""

    name: String
    max_version_level: Int16
    min_version_level: Int16


@message(api_key=18, versions=(0, 4), flexible_since=3)
class ApiVersionsResponse(Message, frozen=True, kw_only=True):
    """The APIs a broker serves; its header has no tagged fields in any version."""

    error_code: Int16
    api_keys: tuple[ApiVersion, ...]
    throttle_time_ms: Annotated[Int32, since(1), IGNORABLE] = 0
    supported_features: Annotated[tuple[SupportedFeatureKey, ...], since(3), Tag(0), IGNORABLE] = ()
    finalized_features_epoch: Annotated[Int64, since(3), Tag(1), IGNORABLE] = -1
    finalized_features: Annotated[tuple[FinalizedFeatureKey, ...], since(3), Tag(2), IGNORABLE] = ()
    zk_migration_ready: Annotated[Bool, since(3), Tag(3), IGNORABLE] = False
