"""Deletes the records of repartition topics once they are committed and no longer needed."""

from __future__ import annotations

import asyncio
import logging

from kohort.client.admin.aio import AsyncAdminClient
from kohort.errors import KohortError
from kohort.region.settings import ClientSettings, admin_settings
from kohort.streams.runtime.owning import Owning
from kohort.types import TopicPartition

log = logging.getLogger("kohort.streams")


class Purger:
    """Deletes records of the repartition topics that the tasks of an instance read.

    Args:
        owning: The tasks.
        clients: How to reach the brokers.
        interval_ms: Milliseconds between deletions.
    """

    def __init__(self, owning: Owning, clients: ClientSettings, interval_ms: int) -> None:
        self._owning = owning
        self._clients = clients
        self._interval_ms = interval_ms
        self._done: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        """Delete records until cancelled; failed deletions are retried at the next interval."""
        while self._owning.application.repartitions:
            await asyncio.sleep(self._interval_ms / 1000)
            due = self._due()
            if due:
                try:
                    await self._delete(due)
                except KohortError as error:
                    log.warning(
                        "%s: committed records of repartition topics could not be deleted, and use"
                        " disk space until they are; trying again in %d ms: %s",
                        self._owning.application.name,
                        self._interval_ms,
                        error,
                    )

    def _due(self) -> dict[TopicPartition, int]:
        own = self._owning.application.repartitions
        return {
            partition: offset
            for held in self._owning.held.values()
            if held.is_owned
            for partition, offset in held.committed.items()
            if partition.topic in own and self._done.get(partition) != offset
        }

    async def _delete(self, offsets: dict[TopicPartition, int]) -> None:
        async with AsyncAdminClient(**admin_settings(self._clients)) as admin:
            await admin.delete_records(offsets)
        self._done.update(offsets)
