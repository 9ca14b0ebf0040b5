"""When a client goes back to its bootstrap servers though some brokers are known (KIP-1102)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeVar

from kohort.client.config.definitions import ClientConfig
from kohort.errors import ErrorCode
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.metadata import MetadataRequest, MetadataResponse

R = TypeVar("R", bound=Message)

ASKED: Final = "a broker asks for that (REBOOTSTRAP_REQUIRED)"
ELSEWHERE: Final = "it sends clients to their bootstrap servers, and is one (REBOOTSTRAP_REQUIRED)"


def patience_s(
    config: ClientConfig, request: Request[R], known: Collection[object]
) -> float | None:
    """Return how many seconds all known brokers may take to answer.

    Args:
        config: Settings.
        request: What they are asked.
        known: The brokers.

    Returns:
        None where that does not matter: another request has its own time.
    """
    if not (known and isinstance(request, MetadataRequest)):
        return None
    return config.metadata_recovery_rebootstrap_trigger_ms / 1000


def wants_rebootstrap(response: Message | None) -> bool:
    """Whether a broker sends the client back to its bootstrap servers."""
    return (
        isinstance(response, MetadataResponse)
        and response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED
    )


def silence(config: ClientConfig) -> str:
    """Say that no known broker has answered in time."""
    longest = config.metadata_recovery_rebootstrap_trigger_ms
    return f"no known broker has told its metadata for {longest} ms"
