"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554)."""

from __future__ import annotations

from kohort.wire.codec.schema import (
    Bytes,
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


class UserName(Struct, frozen=True, kw_only=True):
    """A user."""

    name: String


@message(api_key=50, versions=(0, 0), flexible_since=0)
class DescribeUserScramCredentialsRequest(
    Request["DescribeUserScramCredentialsResponse"], frozen=True, kw_only=True
):
    """Ask which users have credentials; null or an empty list means all."""

    users: tuple[UserName, ...] | None


class CredentialInfo(Struct, frozen=True, kw_only=True):
    """One credential."""

    mechanism: Int8
    iterations: Int32


class DescribeUserScramCredentialsResult(Struct, frozen=True, kw_only=True):
    """The credentials of one user."""

    user: String
    error_code: Int16
    error_message: NullableString = None
    credential_infos: tuple[CredentialInfo, ...]


@message(api_key=50, versions=(0, 0), flexible_since=0)
class DescribeUserScramCredentialsResponse(Message, frozen=True, kw_only=True):
    """The users and their credentials."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: NullableString = None
    results: tuple[DescribeUserScramCredentialsResult, ...]


class ScramCredentialDeletion(Struct, frozen=True, kw_only=True):
    """A credential to delete."""

    name: String
    mechanism: Int8


class ScramCredentialUpsertion(Struct, frozen=True, kw_only=True):
    """A credential to store: the salted password (RFC 5802), its salt and its iterations."""

    name: String
    mechanism: Int8
    iterations: Int32
    salt: Bytes
    salted_password: Bytes


@message(api_key=51, versions=(0, 0), flexible_since=0)
class AlterUserScramCredentialsRequest(
    Request["AlterUserScramCredentialsResponse"], frozen=True, kw_only=True
):
    """Remove, add or replace credentials."""

    deletions: tuple[ScramCredentialDeletion, ...]
    upsertions: tuple[ScramCredentialUpsertion, ...]


class AlterUserScramCredentialsResult(Struct, frozen=True, kw_only=True):
    """The result of the changes of one user."""

    user: String
    error_code: Int16
    error_message: NullableString


@message(api_key=51, versions=(0, 0), flexible_since=0)
class AlterUserScramCredentialsResponse(Message, frozen=True, kw_only=True):
    """The users whose credentials were to change."""

    throttle_time_ms: Int32 = 0
    results: tuple[AlterUserScramCredentialsResult, ...]
