"""Calls that are tried again until their deadline: the pauses, and what is said when time is up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kohort.client.config.definitions import ClientConfig
from kohort.client.net.backoff import Backoff, Deadline, may_pass
from kohort.errors import BrokerUnavailableError, KohortError


class TriedAgain:
    """What a cluster has for calls that are tried again.

    Args:
        config: Settings.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.config = config

    @property
    def unreachable(self) -> BrokerUnavailableError | None:
        """Why no broker could be reached the last time; None when one could."""
        return None

    def waited_for(self) -> str:
        """Say what has not happened yet, though it has not failed."""
        return ""

    def retry_backoff(self) -> Backoff:
        """Return the pauses between the attempts of one call."""
        return Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)

    @asynccontextmanager
    async def within(self, deadline: Deadline, what: str) -> AsyncIterator[None]:
        """Bound a call by its deadline.

        Args:
            deadline: When to give up; it is told what went wrong meanwhile.
            what: What the call wants, for people; that of the outermost call counts.

        Raises:
            KafkaError: Time is up; it says what kept the call, and has that as its cause.
        """
        outer, deadline.what = deadline.what, deadline.what or what
        try:
            async with asyncio.timeout(deadline.left_s()):
                yield
        except TimeoutError:
            deadline.note(self.unreachable)
            raise deadline.expired(self.waited_for())  # noqa: B904  # it has its cause
        finally:
            deadline.what = outer

    async def wait_after(self, error: KohortError, pause: Backoff, deadline: Deadline) -> None:
        """Wait before something is tried again that has failed.

        Raises:
            KohortError: The error itself, when waiting does not help.
            KafkaError: Time is up.
        """
        if not may_pass(error):
            raise error
        deadline.note(error)
        if deadline.over:
            raise deadline.expired() from deadline.cause
        await self.sleep(pause, deadline)

    async def sleep(self, pause: Backoff, deadline: Deadline) -> None:
        """Wait before something is tried again."""
        left, wanted = deadline.left_s(), pause.next_s()
        await asyncio.sleep(wanted if left is None else min(wanted, left))
