"""Auto-commit: periodically, before partitions are given up or dropped, and at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from kohort.client.config.definitions import ConsumerConfig
from kohort.client.consumer.commits.committer import Committer, Offsets
from kohort.client.consumer.last_poll import Undone
from kohort.client.consumer.partitions import Partitions
from kohort.client.net.backoff import Backoff, Deadline
from kohort.group.effects import Callback
from kohort.types import TopicPartition

log = logging.getLogger("kohort.client")

# The longest that a leaving consumer waits for a commit, in milliseconds.
_LEAVING_MS = 5_000


def leaving_ms(config: ConsumerConfig) -> int:
    """Return how long a commit may take, in milliseconds, before the consumer leaves without it."""
    return min(config.request_timeout_ms, config.default_api_timeout_ms, _LEAVING_MS)


class AutoCommit:
    """Commits processed offsets.

    Args:
        config: Settings; without `enable_auto_commit` nothing is committed here.
        partitions: The consumer's partitions.
        committer: Commits the positions.
        notify: Called when the commit before a revocation has ended.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        partitions: Partitions,
        committer: Committer,
        notify: Callable[[], None],
    ) -> None:
        self._config = config
        self._partitions = partitions
        self._committer = committer
        self._notify = notify
        self._timer: asyncio.Task[None] | None = None
        self._before: asyncio.Task[None] | None = None
        self._callback: Callback | None = None
        self._offered: Offsets = {}
        self._behind: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start committing every `auto.commit.interval.ms`."""
        if self._timer is None and self._config.enable_auto_commit:
            self._timer = asyncio.create_task(self._now_and_then())

    def stop_timer(self) -> None:
        """Stop periodic commits; still commit partitions before they are given up."""
        if self._timer is not None:
            self._timer.cancel()

    async def stop(self) -> None:
        """Stop committing."""
        tasks = [each for each in (self._timer, self._before, *self._behind) if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------------------ now and then

    async def _now_and_then(self) -> None:
        config = self._config
        pause = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        is_settled = True
        while True:
            interval_s = config.auto_commit_interval_ms / 1000
            await asyncio.sleep(interval_s if is_settled else pause.next_s())
            is_settled = await self._try()
            if is_settled:
                pause.reset()

    async def _try(self) -> bool:
        """Commit once; return whether no retry is needed.

        Each attempt reads the positions again: a partition that was given up meanwhile belongs to
        another member, which may have read further.
        """
        membership = self._committer.membership
        if membership is not None and not membership.member.session.is_member:
            return True
        return await self._committer.try_quietly(self._partitions.consumed())

    # -------------------------------------------------------------------- before giving things up

    async def commit(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit now: the consumer is closing, and no rebalance waits for it."""
        await asyncio.gather(*self._behind)
        if self._config.enable_auto_commit:
            offsets = self._consumed(partitions)
            await self._committer.commit_quietly(offsets, self._leaving())

    def leave_behind(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit partitions that the application stops reading, in the background."""
        if self._config.enable_auto_commit:
            offsets = self._consumed(partitions)
            task = asyncio.create_task(self._committer.commit_quietly(offsets, self._leaving()))
            self._behind.add(task)
            task.add_done_callback(self._behind.discard)

    def _consumed(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the processed offsets for the last commit; log positions not known yet."""
        chosen = tuple(partitions)
        if self._config.enable_auto_commit:
            self._partitions.tell_sought(self._config.group_id, "auto-commit", chosen)
        return self._partitions.consumed(chosen)

    def settle(self, undone: Undone) -> None:
        """Count the records of the last poll as processed, unless there is a reason not to.

        Args:
            undone: Returns why they may not be processed. Another thread may be about to return
                more records: positions are read before this is called.
        """
        positions = self._partitions.positions()
        why = undone()
        if why is None:
            self._partitions.mark_consumed(positions)
            return
        left = self._partitions.handed_out()
        if left and self._config.enable_auto_commit:
            log.info(
                "group %s: auto-commit leaves out the records of the last poll, as %s; they are"
                " read again: %s",
                self._config.group_id,
                why,
                ", ".join(f"{each.topic}-{each.partition} from {left[each]} on" for each in left),
            )

    def _leaving(self) -> Deadline:
        return Deadline(leaving_ms(self._config))

    def is_done_before(self, callback: Callback) -> bool:
        """L32: commit partitions before they are given up; return whether the commit has ended.

        It runs in the background of polls, and heartbeats continue, for as long as a rebalance may
        take. Until it ends, the application is not asked to give up the partitions.
        """
        if self._callback is not callback:
            self._begin(callback)
        return self._before is None or self._before.done()

    def _begin(self, callback: Callback) -> None:
        self._callback, self._before = callback, None
        offsets = self._committer.news(self._consumed(callback.partitions))
        self._offered = offsets
        if offsets and self._config.enable_auto_commit:
            deadline = Deadline(self._config.max_poll_interval_ms)
            commit = self._committer.commit_quietly(offsets, deadline, is_ours=True)
            self._before = asyncio.create_task(commit)
            self._before.add_done_callback(lambda _: self._notify())

    def stored_meanwhile(self, callback: Callback) -> Offsets:
        """Return offsets that were stored for revoked partitions while the listener ran.

        A listener may wait for other threads that still process their records.
        """
        if self._partitions.stores_offsets or not self._config.enable_auto_commit:
            return {}
        stored = self._committer.news(self._partitions.consumed(callback.partitions))
        offered = self._offered if self._callback is callback else {}
        return {each: at for each, at in stored.items() if offered.get(each) != at}

    async def commit_meanwhile(self, offsets: Offsets, *, is_leaving: bool) -> None:
        """Commit those offsets before the partitions are given up."""
        deadline = self._leaving() if is_leaving else Deadline(self._config.max_poll_interval_ms)
        await self._committer.commit_quietly(offsets, deadline, is_ours=True)

    async def end_before(self, callback: Callback) -> None:
        """Wait briefly for the end of `is_done_before`: the consumer is leaving."""
        if not self.is_done_before(callback) and self._before is not None:
            await asyncio.wait([self._before], timeout=self._leaving().left_s())
            self.abandon()
            await asyncio.wait([self._before])

    def abandon(self) -> None:
        """Abandon the commits of partitions that are given up: it is too late."""
        if self._before is not None:
            self._before.cancel()
