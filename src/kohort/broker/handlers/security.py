"""Responses of a listener without SASL, empty quotas, and operations without authorization."""

from __future__ import annotations

from collections.abc import Sequence

from kohort.broker.context import BrokerContext, Caller
from kohort.errors import ErrorCode, clipped
from kohort.wire.messages.quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kohort.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

EVERYTHING_WITH_A_TOPIC = 3576
"""The operations on a topic that any client may perform, one bit each (KIP-430)."""

_EVERYTHING_WITH_THE_CLUSTER = 8096
_NOT_ASKED = -2147483648

_QUOTA_ENTITIES = ("user", "client-id", "ip")
_EXACTLY, _DEFAULT, _ANY = range(3)


def cluster_operations(asked: bool) -> int:
    """Return the operations on the cluster that any client may perform, if requested (KIP-430)."""
    return _EVERYTHING_WITH_THE_CLUSTER if asked else _NOT_ASKED


def no_handshake(
    _broker: BrokerContext, _request: SaslHandshakeRequest, _caller: Caller
) -> SaslHandshakeResponse:
    """Reject SASL on a listener without it; on others, a `Gate` handles this request."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=())


def no_authentication(
    _broker: BrokerContext, _request: SaslAuthenticateRequest, _caller: Caller
) -> SaslAuthenticateResponse:
    """Reject SASL on a listener without it."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="this listener does not use SASL",
        auth_bytes=b"",
    )


def describe_client_quotas(
    _broker: BrokerContext, request: DescribeClientQuotasRequest, _caller: Caller
) -> DescribeClientQuotasResponse:
    """Return no quotas, or an error if the filter is invalid."""
    code, message = _quota_problem(request.components)
    return DescribeClientQuotasResponse(
        error_code=code, error_message=clipped(message), entries=None if message else ()
    )


def _quota_problem(components: Sequence[ComponentData]) -> tuple[ErrorCode, str | None]:
    kinds = [each.entity_type for each in components]
    for each in components:
        if not each.entity_type or each.match_type not in (_EXACTLY, _DEFAULT, _ANY):
            return (
                ErrorCode.INVALID_REQUEST,
                f"invalid entity or match type of {each.entity_type!r}",
            )
        if (each.match is None) == (each.match_type == _EXACTLY):
            return (
                ErrorCode.INVALID_REQUEST,
                "an exact match needs a name, and others must have none",
            )
        if each.entity_type not in _QUOTA_ENTITIES:
            return ErrorCode.UNSUPPORTED_VERSION, f"unknown entity type {each.entity_type!r}"
    if len({*kinds}) < len(kinds) or ("ip" in kinds and len(kinds) > 1):
        return ErrorCode.INVALID_REQUEST, "these entity types cannot be combined"
    return ErrorCode.NONE, None
