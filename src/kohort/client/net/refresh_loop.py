"""Keeps metadata fresh: refreshes it on request, with growing pauses while that fails.

It also decides when a client returns to its bootstrap servers although some brokers are known
(KIP-1102).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeVar

from kohort.client.config.definitions import ClientConfig
from kohort.client.net.backoff import Backoff
from kohort.client.net.incidents import Incidents
from kohort.client.net.metadata import ClusterMetadata
from kohort.errors import ErrorCode, KohortError
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.metadata import MetadataRequest, MetadataResponse

R = TypeVar("R", bound=Message)

log = logging.getLogger("kohort.client")

ASKED: Final = "a broker requested it (REBOOTSTRAP_REQUIRED)"
ELSEWHERE: Final = "it sends clients to their bootstrap servers, but is one (REBOOTSTRAP_REQUIRED)"


class RefreshLoop:
    """Requests metadata in the background.

    Missing metadata is requested repeatedly: pauses grow while the answers stay the same (KIP-580).

    Args:
        config: Settings.
        refresh: Requests metadata once.
        present: Returns the metadata of the last answer.
        lacks_something: Whether wanted metadata is missing from it.
        incidents: Where problems are reported.
    """

    def __init__(
        self,
        config: ClientConfig,
        refresh: Callable[[], Awaitable[None]],
        present: Callable[[], ClusterMetadata],
        lacks_something: Callable[[], bool],
        incidents: Incidents,
    ) -> None:
        self.task: asyncio.Task[None] | None = None
        self._config = config
        self._refresh = refresh
        self._present = present
        self._lacks_something = lacks_something
        self._incidents = incidents
        self._stale = asyncio.Event()
        self._hurried = asyncio.Event()

    def start(self) -> None:
        """Start keeping the current metadata fresh."""
        if self.task is None:
            self.task = asyncio.create_task(self._run())

    def request(self, *, at_once: bool = False) -> None:
        """Request a refresh of the metadata soon.

        Args:
            at_once: Skip the pause after earlier attempts, because new topics are wanted.
        """
        self._stale.set()
        if at_once:
            self._hurried.set()
        self.start()

    async def _run(self) -> None:
        config = self._config
        pause = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        known = self._present()
        await _is_set_within(self._stale, pause.next_s())
        while True:
            if not (self._stale.is_set() or self._lacks_something()):
                await self._wait_until_stale(pause)
            self._stale.clear()
            self._hurried.clear()
            await self._try()
            if self._present() != known:
                known = self._present()
                pause.reset()
            if await _is_set_within(self._hurried, pause.next_s()):
                pause.reset()

    async def _try(self) -> None:
        """Ask once. Every error is retried: nothing else would restart this task."""
        try:
            await self._refresh()
        except KohortError as error:
            log.debug("metadata: %s", error)
            self._stale.set()
        except Exception as error:  # noqa: BLE001  # a bug; it is logged
            self._incidents.note_defect("asking for metadata", error)
            self._stale.set()

    async def _wait_until_stale(self, pause: Backoff) -> None:
        """Wait for a request or until the metadata is stale; after that long, pauses are short."""
        now = asyncio.get_running_loop().time
        begun = now()
        await _is_set_within(self._stale, self._config.metadata_max_age_ms / 1000)
        if now() - begun > self._config.retry_backoff_max_ms / 1000:
            pause.reset()


async def _is_set_within(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


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
