"""FindCoordinator: the broker that coordinates a group (KIP-699 for several at once)."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    IGNORABLE,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    between,
    message,
    since,
    until,
)


@message(api_key=10, versions=(0, 6), flexible_since=3)
class FindCoordinatorRequest(Request["FindCoordinatorResponse"], frozen=True, kw_only=True):
    """Ask for the broker that coordinates a group or a transactional id."""

    key: Annotated[String, until(3)] = ""
    key_type: Annotated[Int8, since(1)] = 0
    coordinator_keys: Annotated[tuple[String, ...], since(4)] = ()


class Coordinator(Struct, frozen=True, kw_only=True):
    """The coordinator of one key."""

    key: String
    node_id: Int32
    host: String
    port: Int32
    error_code: Int16
    error_message: NullableString


@message(api_key=10, versions=(0, 6), flexible_since=3)
class FindCoordinatorResponse(Message, frozen=True, kw_only=True):
    """The coordinators; one in the fields of version 3 and before, any number after."""

    throttle_time_ms: Annotated[Int32, since(1), IGNORABLE] = 0
    error_code: Annotated[Int16, until(3)] = 0
    error_message: Annotated[NullableString, between(1, 3), IGNORABLE] = None
    node_id: Annotated[Int32, until(3)] = 0
    host: Annotated[String, until(3)] = ""
    port: Annotated[Int32, until(3)] = 0
    coordinators: Annotated[tuple[Coordinator, ...], since(4)] = ()
