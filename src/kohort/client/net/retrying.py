"""Calls that are retried until their deadline: the pauses, and the error when time is up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kohort.client.config.definitions import ClientConfig
from kohort.client.net.backoff import Backoff, Deadline, may_pass
from kohort.errors import BrokerUnavailableError, KohortError


class Retrying:
    """Base of `Cluster` for calls that are retried.

    Args:
        config: Settings.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.config = config

    @property
    def unreachable(self) -> BrokerUnavailableError | None:
        """Why no broker could be reached at the last attempt; None when one was."""
        return None

    def waited_for(self) -> str:
        """Describe what is still pending but has not failed."""
        return ""

    def retry_backoff(self) -> Backoff:
        """Return the pauses between the attempts of one call."""
        return Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)

    @asynccontextmanager
    async def within(self, deadline: Deadline, what: str) -> AsyncIterator[None]:
        """Limit a call by its deadline.

        Args:
            deadline: When to give up; it records the last error.
            what: Name of the operation, for messages; the outermost call's name is used.

        Raises:
            KafkaError: Time is up; the error names the last error and has it as its cause.
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
        """Wait before a failed attempt is repeated.

        Raises:
            KohortError: The given error, when waiting does not help.
            KafkaError: Time is up.
        """
        if not may_pass(error):
            raise error
        deadline.note(error)
        if deadline.over:
            raise deadline.expired() from deadline.cause
        await self.sleep(pause, deadline)

    async def sleep(self, pause: Backoff, deadline: Deadline) -> None:
        """Wait before the next attempt."""
        left, wanted = deadline.left_s(), pause.next_s()
        await asyncio.sleep(wanted if left is None else min(wanted, left))
