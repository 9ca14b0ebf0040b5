"""Watches topics while an instance runs; the client itself checks only every few minutes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from kohort.errors import KohortError
from kohort.streams.runtime.changelogs import made_again
from kohort.streams.runtime.owning import Owning
from kohort.streams.topics import missing, unfit, unread

log = logging.getLogger("kohort.streams")

_LOOK_S = 5.0


class TopicWatch:
    """Stops parts whose topics no longer have the number of partitions their state was created for.

    Also stops parts whose changelogs were recreated, and parts that write to deleted topics.

    Args:
        owning: The tasks of the instance.
        before: The number of partitions of each topic when the instance started.
    """

    def __init__(self, owning: Owning, before: Mapping[str, int]) -> None:
        self._owning = owning
        self._before = before
        self._unread: list[str] = []
        self._gone: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self._look()

    async def _look(self) -> None:
        application = self._owning.application
        changelogs = (topic for topics in application.changelogs.values() for topic in topics)
        written = application.outputs.union(changelogs, filter(None, [application.dead_letters]))
        try:
            found = await self._owning.consumer.topic_metadata([*self._before, *written])
        except KohortError as error:
            log.warning(
                "%s: cannot find out whether topics have changed: %s",
                application.name,
                error,
            )
            return
        ids = {topic: str(each.topic_id) for topic, each in found.items() if each.topic_id.int}
        self._owning.refuse(made_again(application, self._owning.control.state.changelogs, ids))
        gone = written - found.keys()
        # A broker may learn about a topic late, so one check is not enough.
        self._owning.refuse(missing(application, gone & self._gone))
        self._gone = gone
        now = {t: len(each.partitions) for t, each in found.items() if t in self._before}
        self._owning.refuse(unfit(application, self._before, now))
        passed_over = unread(application, now)
        if passed_over and passed_over != self._unread:
            log.warning(
                "%s: %s are not read until the topics that are read together with them have as many"
                " partitions: add the missing ones",
                application.name,
                ", ".join(passed_over),
            )
        self._unread = passed_over
