"""Replays changelogs: for granted tasks, and before that for learners and standbys.

One consumer without a group reads all of them. While a granted task waits for its state, learners
and standbys pause, because no instance processes the granted task meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kohort.client import AsyncConsumer
from kohort.errors import KohortError
from kohort.region.settings import ClientSettings, consumer_settings
from kohort.streams.assignment.tasks import Task
from kohort.streams.errors import ChangelogTruncatedError, InternalTopicError
from kohort.streams.runtime.failures import AGAIN_S, may_go_on
from kohort.streams.runtime.interface import Pair, StateDirectory, Store, StreamTask
from kohort.streams.settings import StreamSettings
from kohort.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("kohort.streams")

_POLL_MS = 100
_FETCH_BYTES = 4 * 1024 * 1024
# How long a changelog's new leader may report fewer records than were acknowledged.
_APPEARS_S = 30.0
_AGAIN_S = 0.05
# The learners' rate limit is applied in slices of this length.
_RATE_WINDOW_S = 0.1


class Replay:
    """The state of one task during its replay.

    Args:
        task: The task.
        work: Its stores.
        directory: Their location on disk; None: state is kept in memory.
        failed: Called with the error if the replay cannot continue; None: only those waiting for
            the state get it.

    Attributes:
        positions: The next offset of each changelog.
        records: Number of applied records.
        is_urgent: Whether the task is granted, so that no instance processes it meanwhile.
        error: The error that ended the replay.
    """

    def __init__(
        self,
        task: Task,
        work: StreamTask,
        directory: StateDirectory | None,
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        self.task = task
        self.work = work
        self.directory = directory
        self.stores: dict[TopicPartition, Store] = {
            TopicPartition(topic, task.partition): work.stores[name]
            for name, topic in work.changelogs.items()
        }
        self.positions: dict[TopicPartition, int] = {}
        self.records = 0
        self.is_urgent = False
        self.error: Exception | None = None
        self._failed = failed
        self.moved = asyncio.Event()

    def apply(self, partition: TopicPartition, pairs: Sequence[Pair]) -> None:
        """Apply records of a changelog."""
        self.stores[partition].restore(pairs)
        self.records += len(pairs)

    def moved_to(self, partition: TopicPartition, position: int) -> None:
        """Update the position of the replay."""
        self.positions[partition] = position
        self.moved.set()

    def fail(self, error: Exception) -> None:
        """End with an error, which is raised in everything that waits for the state."""
        self.error = error
        self.moved.set()
        if self._failed is not None:
            self._failed(error)

    def is_at(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether everything is replayed up to these offsets."""
        return all(self.positions.get(each, 0) >= end for each, end in ends.items())

    def checkpoint(self) -> None:
        """Flush the stores, then write the checkpoint."""
        for store in self.stores.values():
            store.flush()
        if self.directory is not None:
            self.directory.write_checkpoint(dict(self.positions))


class Restorer:
    """Replays the changelogs of an instance's tasks, on one event loop.

    Args:
        application: Name of the application.
        settings: The instance's settings.
        clients: How to reach the brokers.
        consumer: Reads changelogs, without a group; None: create a consumer.

    Attributes:
        records: Number of applied changelog records.
        busy_s: Seconds spent decoding and applying records.
        consumer: Reads them.
    """

    def __init__(
        self,
        application: str,
        settings: StreamSettings,
        clients: ClientSettings,
        consumer: AsyncConsumer | None = None,
    ) -> None:
        self.records = 0
        self.busy_s = 0.0
        self._application = application
        self._settings = settings
        self.consumer = consumer or AsyncConsumer(
            **consumer_settings(
                clients,
                auto_offset_reset="none",
                enable_auto_commit=False,
                allow_auto_create_topics=False,
                max_partition_fetch_bytes=_FETCH_BYTES,
            )
        )
        self._replays: dict[TopicPartition, Replay] = {}
        self._changed = asyncio.Event()
        self._allowed = 0.0
        self._refilled = 0.0
        self._is_open = True

    async def close(self) -> None:
        """Close the connections."""
        self._is_open = False
        self._changed.set()
        await self.consumer.close(5.0)

    # ----------------------------------------------------------------------- starting and stopping

    async def follow(self, replay: Replay) -> None:
        """Start to replay a task from its checkpoint, or from the start of its changelogs.

        Raises:
            ChangelogTruncatedError: The changelog does not contain the checkpoint's offset.
            KafkaError: The brokers cannot be reached.
        """
        known = dict(replay.directory.read_checkpoint()) if replay.directory is not None else {}
        starts = await self.consumer.beginning_offsets(list(replay.stores))
        least = {each: known[each] for each in starts if each in known}
        ends = await self._reached(list(replay.stores), least)
        for partition, start in starts.items():
            at = known.get(partition)
            if at is not None and not start <= at <= ends[partition]:
                raise ChangelogTruncatedError(
                    f"task {replay.task} has state on disk up to offset {at} of"
                    f" {partition.topic}-{partition.partition}, which has offsets {start} to"
                    f" {ends[partition]}: delete the state directory of the task to replay all"
                )
            replay.positions[partition] = start if at is None else at
        self._replays.update(dict.fromkeys(replay.stores, replay))
        self.consumer.assign(list(self._replays))
        for partition, position in replay.positions.items():
            self.consumer.seek(partition, position)
        self._arrange()

    def leave(self, replay: Replay) -> None:
        """Stop replaying a task; its stores are at `positions`."""
        for partition in replay.stores:
            if self._replays.get(partition) is replay:
                del self._replays[partition]
        if self._is_open and not self._replays:
            # keep the assignment: a running poll would warn that there is nothing to read
            self.consumer.pause(*self.consumer.assignment())
        elif self._is_open:
            self.consumer.assign(list(self._replays))
            self._arrange()

    def _arrange(self) -> None:
        """Pause learners while a granted task is replayed."""
        is_urgent = any(each.is_urgent for each in self._replays.values())
        wait = [p for p, each in self._replays.items() if is_urgent and not each.is_urgent]
        self.consumer.resume(*(set(self._replays) - set(wait)))
        self.consumer.pause(*wait)
        self._changed.set()

    # ------------------------------------------------------------------------------------ progress

    def lag(self, replay: Replay) -> int | None:
        """Return the lag of a task in offsets; None: unknown (yet)."""
        total = 0
        for partition in replay.stores:
            if self._replays.get(partition) is not replay:
                return None  # replay has stopped
            lag = self.consumer.current_lag(partition)
            if lag is None:
                return None
            total += lag
        return total

    async def ends(
        self, partitions: Sequence[TopicPartition], least: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the end offsets of changelogs.

        Args:
            partitions: The changelogs.
            least: The minimum end of each, from its last owner's commit.

        Raises:
            ChangelogTruncatedError: A changelog stays shorter than that.
            KafkaError: The brokers cannot be reached.
        """
        found = await self._reached(partitions, least)
        for partition, end in sorted(least.items()):
            if found.get(partition, end) < end:
                raise ChangelogTruncatedError(
                    f"{partition.topic}-{partition.partition} ends at offset {found[partition]},"
                    f" but its last owner committed when it ended at {end}: changes of state are"
                    " lost. Restore the topic, or reset the application: kohort streams reset"
                    f" {self._application}"
                )
        return found

    async def _reached(
        self, partitions: Sequence[TopicPartition], least: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the ends of changelogs, after waiting a while for them to reach `least`."""
        now = asyncio.get_running_loop().time
        until = now() + _APPEARS_S
        while True:
            found = await self.consumer.end_offsets(partitions) if partitions else {}
            is_short = any(found.get(each, end) < end for each, end in least.items())
            if not is_short or now() > until:
                return found
            await asyncio.sleep(_AGAIN_S)

    async def finish(self, replay: Replay, ends: Mapping[TopicPartition, int]) -> None:
        """Replay a granted task up to `ends` before all others, then stop following it.

        Raises:
            Exception: The error of the replay.
        """
        replay.is_urgent = True
        self._arrange()
        try:
            while not replay.is_at(ends):
                if replay.error is not None:
                    raise replay.error
                replay.moved.clear()
                await replay.moved.wait()
        finally:
            replay.is_urgent = False
            self.leave(replay)

    # ----------------------------------------------------------------------------------- replaying

    async def run(self) -> None:
        """Replay until cancelled.

        Raises:
            KohortError: The changelogs cannot be read at all.
        """
        while self._is_open:
            if not self._replays:
                self._changed.clear()
                await self._changed.wait()
                continue
            count = await self._allowance()
            if not self._replays:  # the last replay ended meanwhile
                continue
            try:
                batch = await self.consumer.poll_arrow(_POLL_MS, max_records=count)
            except KohortError as error:
                await self._blame(error)
                continue
            self._take(batch)

    async def _allowance(self) -> int:
        """Wait until records may be replayed, and return how many."""
        rate = self._settings.learner_records_per_s
        budget = self._settings.restore_budget
        while rate is not None and not any(r.is_urgent for r in self._replays.values()):
            now = asyncio.get_running_loop().time()
            most = max(1.0, rate * _RATE_WINDOW_S)
            self._allowed = min(most, self._allowed + (now - self._refilled) * rate)
            self._refilled = now
            if self._allowed >= 1:
                return min(budget, int(self._allowed))
            self._changed.clear()
            try:
                async with asyncio.timeout(_RATE_WINDOW_S):
                    await self._changed.wait()
            except TimeoutError:
                continue
        return budget

    async def _blame(self, error: KohortError) -> None:
        """Fail the replay whose changelog cannot be read; the others continue.

        Raises:
            KohortError: The error does not belong to one changelog, and retrying does not help.
        """
        if may_go_on(error):
            log.warning(
                "%s: changelogs cannot be read now: %s; trying again", self._application, error
            )
            await asyncio.sleep(AGAIN_S)
            return
        bad = [each for each in self._replays if _names(str(error), each)]
        if not bad:
            raise error
        for partition in bad:
            replay = self._replays.get(partition)
            if replay is not None:  # otherwise another changelog has already failed it
                self.leave(replay)
                replay.fail(error)
        await asyncio.sleep(0)

    def _take(self, batch: pa.RecordBatch) -> None:
        began = time.monotonic()
        for partition, keys, values in runs(batch):
            replay = self._replays.get(partition)
            if replay is None or replay.error is not None:
                continue
            try:
                if None in keys:
                    raise InternalTopicError(
                        f"{partition.topic}-{partition.partition} has a record without a key,"
                        " which no task of this application wrote: stop its writer"
                    )
                replay.apply(partition, list(zip(keys, values, strict=True)))
            except Exception as error:  # noqa: BLE001  # the task fails, the others go on
                self.leave(replay)
                replay.fail(error)
            else:
                self.records += len(keys)
                if not replay.is_urgent:
                    self._allowed -= len(keys)
        positions = self.consumer.positions()
        for partition, replay in list(self._replays.items()):
            position = positions.get(partition)
            if position is not None and position != replay.positions.get(partition):
                replay.moved_to(partition, position)
        self.busy_s += time.monotonic() - began


def _names(text: str, partition: TopicPartition) -> bool:
    """Whether a text contains a partition's name, not just a longer name that includes it."""
    name = re.escape(f"{partition.topic}-{partition.partition}")
    return re.search(rf"(?<![\w.-]){name}(?![\w-]|\.\w)", text) is not None


def runs(
    batch: pa.RecordBatch,
) -> Iterator[tuple[TopicPartition, list[bytes], list[bytes | None]]]:
    """Yield the keys and values of each run of records of one partition."""
    if not batch.num_rows:
        return
    starts = _starts(batch)
    topics, numbers = batch.column("topic"), batch.column("partition")
    keys, values = batch.column("key"), batch.column("value")
    for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        partition = TopicPartition(topics[start].as_py(), numbers[start].as_py())
        size = end - start
        yield partition, keys.slice(start, size).to_pylist(), values.slice(start, size).to_pylist()


def _starts(batch: pa.RecordBatch) -> list[int]:
    """Return the rows at which a new partition begins."""
    import pyarrow.compute as pc

    found = {0}
    for name in ("topic", "partition"):
        ends = pc.run_end_encode(batch.column(name)).run_ends.to_pylist()
        found.update(ends[:-1])
    return sorted(found)
