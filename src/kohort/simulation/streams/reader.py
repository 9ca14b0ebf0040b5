"""A consumer without a group: the part needed for control topics and changelogs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kohort.client.consumer.records import ConsumerRecord
from kohort.streams.runtime.interface import Pair
from kohort.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.simulation.streams.base import BaseProcess

_WAY_MS = 4
# Empty polls may return late: nothing depends on them, and each costs steps.
_POLL_S = 1.0
_MOST = 5_000


class LogReader:
    """Reads logs of the brokers.

    Args:
        process: Its process.
        is_throttled: Whether it is limited to the replay rate of its process.

    Attributes:
        heard_at: Time of the last answer to a fetch, and so of the lags.
    """

    def __init__(self, process: BaseProcess, *, is_throttled: bool) -> None:
        self._process = process
        self._brokers = process.streams_world.brokers
        self._is_throttled = is_throttled
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._known_ends: dict[TopicPartition, int] = {}
        self._news: asyncio.Future[object] | None = None
        self._free_at = 0
        self.heard_at = 0

    def grown(self, place: TopicPartition) -> None:
        """Wake it up, if it reads the partition that has grown."""
        if place in self._positions and place not in self._paused:
            self.wake()

    def wake(self) -> None:
        """Wake it up."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    # --------------------------------------------------------------------------------- assignment

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read partitions."""
        self._positions = {each: self._positions.get(each, 0) for each in partitions}
        self._known_ends = {p: end for p, end in self._known_ends.items() if p in self._positions}
        self._paused &= self._positions.keys()
        self.wake()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue from an offset."""
        self._positions[partition] = offset
        self._known_ends.pop(partition, None)

    def seek_to_beginning(self, partition: TopicPartition) -> None:
        """Continue from the start."""
        self.seek(partition, 0)

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop reading partitions."""
        self._paused.update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Read these again."""
        self._paused.difference_update(partitions)
        self.wake()

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that it reads."""
        return frozenset(self._positions)

    def positions(self) -> dict[TopicPartition, int]:
        """Return the next offset of each partition."""
        return dict(self._positions)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return its lag as of the last fetch."""
        end = self._known_ends.get(partition)
        return None if end is None else max(0, end - self._positions[partition])

    # ----------------------------------------------------------------------------------- requests

    async def beginning_offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the first offsets."""
        await self._way()
        return dict.fromkeys(partitions, 0)

    async def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends, according to the leaders."""
        await self._way()
        now = self._process.world.engine.now
        return {each: self._brokers.log(each).end_at(now) for each in partitions}

    async def topic_metadata(self, _topics: Sequence[str]) -> Mapping[str, object]:
        """Return nothing: these brokers have no topic ids."""
        return {}

    async def _way(self) -> None:
        """Wait as long as a request takes."""
        blocked = max(self._process.up_blocked_until, self._process.down_blocked_until)
        await asyncio.sleep(max(_WAY_MS, blocked - self._process.world.engine.now) / 1000)

    # -------------------------------------------------------------------------------------- polls

    async def poll(self, _timeout_ms: int = 0) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return new records."""
        found = await self._fetch(_MOST)
        return {
            place: [
                ConsumerRecord(*place, first + number, 0, 0, key, value, (), -1)
                for number, (key, value) in enumerate(pairs)
            ]
            for place, (first, pairs) in found.items()
        }

    async def poll_arrow(
        self, _timeout_ms: int = 0, max_records: int | None = None
    ) -> pa.RecordBatch:
        """Return new records as columns."""
        import pyarrow as pa

        found = await self._fetch(max_records or _MOST)
        rows = [
            (place.topic, place.partition, key, value)
            for place, (_, pairs) in found.items()
            for key, value in pairs
        ]
        topics, numbers, keys, values = zip(*rows, strict=True) if rows else ((), (), (), ())
        columns = {
            "topic": pa.array(topics, pa.string()),
            "partition": pa.array(numbers, pa.int32()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
        return pa.RecordBatch.from_pydict(columns)

    async def _fetch(self, most: int) -> dict[TopicPartition, tuple[int, list[Pair]]]:
        loop = self._process.streams.loop
        until = loop.time() + _POLL_S
        await self._way()
        while True:
            found = self._taken(most)
            left = until - loop.time()
            if found or left <= 0:
                return found
            self._news = loop.create_future()
            wait = min(left, max(0.001, (self._free_at - self._process.world.engine.now) / 1000))
            timer = loop.call_later(wait if self._is_held else left, self.wake)
            await self._news
            timer.cancel()

    @property
    def _is_held(self) -> bool:
        return self._free_at > self._process.world.engine.now

    def _taken(self, most: int) -> dict[TopicPartition, tuple[int, list[Pair]]]:
        """Return the next records, and note the ends in the answer."""
        process, now = self._process, self._process.world.engine.now
        rate = process.streams_world.replay_rate(process) if self._is_throttled else None
        self._free_at = max(self._free_at, process.down_blocked_until, process.up_blocked_until)
        if rate == 0:
            self._free_at = max(self._free_at, process.slow_until)
        if self._is_held:
            return {}
        self.heard_at = now
        left = most if rate is None else max(1, min(most, rate // 10))
        found: dict[TopicPartition, tuple[int, list[Pair]]] = {}
        for place in self._positions:
            if place in self._paused:
                continue
            log, first = self._brokers.log(place), self._positions[place]
            self._known_ends[place] = end = log.end_at(now)
            pairs = log.pairs[first : min(end, first + left)] if left else []
            if pairs:
                found[place] = first, pairs
                self._positions[place] = first + len(pairs)
                left -= len(pairs)
        if found and rate is not None:
            count = sum(len(pairs) for _, pairs in found.values())
            self._free_at = now + 1000 * count // rate
        return found

    async def close(self, _timeout_s: float = 0.0) -> None:
        """Do nothing."""
