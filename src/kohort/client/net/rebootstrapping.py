"""When a client returns to its bootstrap servers although brokers are known (KIP-1102)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeVar

from kohort.client.config.definitions import ClientConfig
from kohort.errors import ErrorCode
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.metadata import MetadataRequest, MetadataResponse

R = TypeVar("R", bound=Message)

ASKED: Final = "a broker requested it (REBOOTSTRAP_REQUIRED)"
ELSEWHERE: Final = "it sends clients to their bootstrap servers, but is one (REBOOTSTRAP_REQUIRED)"


def patience_s(
    config: ClientConfig, request: Request[R], known: Collection[object]
) -> float | None:
    """Return how many seconds the known brokers together may take to answer.

    Args:
        config: Settings.
        request: The request sent to them.
        known: The known brokers.

    Returns:
        None for other requests, which have timeouts of their own.
    """
    if not (known and isinstance(request, MetadataRequest)):
        return None
    return config.metadata_recovery_rebootstrap_trigger_ms / 1000


def wants_rebootstrap(response: Message | None) -> bool:
    """Whether an answer sends the client back to its bootstrap servers."""
    return (
        isinstance(response, MetadataResponse)
        and response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED
    )


def silence(config: ClientConfig) -> str:
    """Return the text for known brokers that did not answer in time."""
    longest = config.metadata_recovery_rebootstrap_trigger_ms
    return f"no known broker has answered a metadata request for {longest} ms"
