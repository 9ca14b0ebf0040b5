"""DescribeUserScramCredentials: which users have a password (KIP-554)."""

from __future__ import annotations

from kohort.wire.schema import (
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    message,
    struct,
)


@struct
class UserName(Struct):
    """A user."""

    name: String


@message(api_key=50, versions=(0, 0), flexible_since=0)
class DescribeUserScramCredentialsRequest(Request["DescribeUserScramCredentialsResponse"]):
    """Ask which users have credentials; null or nobody means all."""

    users: tuple[UserName, ...] | None


@struct
class CredentialInfo(Struct):
    """One credential."""

    mechanism: Int8
    iterations: Int32


@struct
class DescribeUserScramCredentialsResult(Struct):
    """The credentials of one user."""

    user: String
    error_code: Int16
    error_message: NullableString = None
    credential_infos: tuple[CredentialInfo, ...]


@message(api_key=50, versions=(0, 0), flexible_since=0)
class DescribeUserScramCredentialsResponse(Message):
    """The users and their credentials."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: NullableString = None
    results: tuple[DescribeUserScramCredentialsResult, ...]
