"""Counts the partitions of inputs while an instance runs; the client looks every few minutes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from kohort.errors import KohortError
from kohort.streams.owning import Owning
from kohort.streams.topics import unfit, unread

log = logging.getLogger("kohort.streams")

_COUNT_S = 5.0


class InputCounts:
    """Stops the parts whose topics have other partitions than their state was made for.

    Args:
        owning: The tasks of the instance.
        before: The number of partitions of each topic when the instance started.
    """

    def __init__(self, owning: Owning, before: Mapping[str, int]) -> None:
        self._owning = owning
        self._before = before
        self._unread: list[str] = []

    async def run(self) -> None:
        """Count for ever."""
        while True:
            await asyncio.sleep(_COUNT_S)
            await self._count()

    async def _count(self) -> None:
        application = self._owning.application
        try:
            found = await self._owning.consumer.topic_metadata(list(self._before))
        except KohortError as error:
            log.warning(
                "%s: whether topics have more partitions by now is not known: %s",
                application.name,
                error,
            )
            return
        now = {topic: len(each.partitions) for topic, each in found.items()}
        self._owning.refuse(unfit(application, self._before, now))
        passed_over = unread(application, now)
        if passed_over and passed_over != self._unread:
            log.warning(
                "%s: nobody reads %s until the topics that are read together with them have as many"
                " partitions: add those",
                application.name,
                ", ".join(passed_over),
            )
        self._unread = passed_over
