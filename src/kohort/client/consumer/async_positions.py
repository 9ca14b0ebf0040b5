"""Positions of an asyncio consumer in its partitions, and offset queries to the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.client.blocking.facade import AsyncFacade
from kohort.client.config import arguments
from kohort.client.config.definitions import ConsumerConfig
from kohort.client.consumer.commits.offsets import OffsetAndTimestamp, list_offsets
from kohort.client.consumer.core import ConsumerCore
from kohort.client.consumer.internals import ConsumerInternals
from kohort.client.consumer.partitions import EARLIEST, LATEST, PartitionState
from kohort.client.measures import lag_of
from kohort.client.net.backoff import Deadline
from kohort.client.net.metadata import ClusterMetadata, TopicMetadata
from kohort.errors import KafkaError, with_right
from kohort.types import TopicPartition


class AsyncPositions(AsyncFacade):
    """The calls of `AsyncConsumer` about positions and offsets."""

    _config: ConsumerConfig
    _internals: ConsumerInternals

    @property
    def _core(self) -> ConsumerCore:
        """The core that does the work."""
        return self._internals.core

    # --------------------------------------------------------------------------- positions

    async def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """Return the offset of the next record; look it up if necessary.

        Raises:
            LocalProtocolError: The partition is not assigned.
            KafkaError: The offset cannot be determined in time.
        """
        where = arguments.partition(partition)
        return await self._position(where, self._deadline(timeout_ms))

    async def _position(self, where: TopicPartition, deadline: Deadline) -> int:
        deadline.what = f"the position of {where.topic}-{where.partition}"
        while (state := self._core.partitions[where]).position is None:
            if state.failure is not None:
                raise state.failure
            if state.trouble is not None and not state.trouble.is_over:
                state.trouble.is_reported = True
                raise state.trouble.error
            state.is_asked = True
            self._core.positions.find()
            self._core.changed.clear()
            if await self._core.wait_for_news(deadline):
                deadline.note(self._core.cluster.unreachable or self._core.positions.trouble)
                raise deadline.expired() from deadline.cause
        return state.position

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record of each partition whose offset is known."""
        states = self._core.partitions
        return {each.partition: each.position for each in states if each.position is not None}

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the end offset of a partition at its last fetch; None before the first.

        Raises:
            LocalProtocolError: The partition is not assigned.
        """
        return self._core.partitions[arguments.partition(partition)].high_watermark

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return how far the position is behind the end offset; None while one is not known.

        Uses the end offset of the last fetch, without a request to the broker (KIP-666).

        Raises:
            LocalProtocolError: The partition is not assigned.
        """
        return lag_of(self._core.partitions[arguments.partition(partition)])

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue from `offset` in a partition."""
        where, next_offset = arguments.partition(partition), arguments.offset(offset)
        self._core.partitions[where].seek(next_offset)
        self._core.fetcher.pump()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Move to the first record of these partitions, by default of all."""
        self._look_up(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Move past the last record of these partitions, by default of all."""
        self._look_up(partitions, LATEST)

    def _look_up(self, partitions: tuple[TopicPartition, ...], target: int) -> None:
        for state in self._states(partitions or tuple(self._core.partitions.assigned)):
            state.look_up(target)
            state.is_sought = True
        self._core.positions.find()

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop returning records of these partitions; fetched records are kept."""
        for state in self._states(partitions):
            state.is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        for state in self._states(partitions):
            state.resume()
        self._core.fetcher.pump()
        self._core.notify()

    def _states(self, partitions: tuple[TopicPartition, ...]) -> list[PartitionState]:
        """Return the states of partitions; all must exist before any is changed."""
        return [self._core.partitions[each] for each in arguments.partitions(partitions)]

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return frozenset(each.partition for each in self._core.partitions if each.is_paused)

    # ----------------------------------------------------------------- what the brokers know

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        wanted = arguments.partitions(partitions)
        return await self._offsets(dict.fromkeys(wanted, EARLIEST), timeout_ms)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""
        wanted = arguments.partitions(partitions)
        return await self._offsets(dict.fromkeys(wanted, LATEST), timeout_ms)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a timestamp (milliseconds); None if there is none."""
        wanted = arguments.timestamps(timestamps)
        found = await list_offsets(self._core.cluster, wanted, self._deadline(timeout_ms))
        return {each: where if where.offset >= 0 else None for each, where in found.items()}

    async def _offsets(
        self, targets: Mapping[TopicPartition, int], timeout_ms: int | None
    ) -> dict[TopicPartition, int]:
        found = await list_offsets(
            self._core.cluster,
            targets,
            self._deadline(timeout_ms),
            read_committed=self._config.isolation_level == "read_committed",
        )
        return {partition: where.offset for partition, where in found.items()}

    async def partitions_for_topic(
        self, topic: str, timeout_ms: int | None = None
    ) -> frozenset[int] | None:
        """Return the numbers of a topic's partitions; None when the topic does not exist.

        Asking does not create the topic.
        """
        name = arguments.topic(topic)
        metadata = await self._core.cluster.describe([name], self._deadline(timeout_ms))
        found = metadata.topics.get(name)
        return frozenset(found.partitions) if found and found.partitions else None

    async def topic_metadata(
        self, topics: Iterable[str], timeout_ms: int | None = None
    ) -> dict[str, TopicMetadata]:
        """Return ids and partitions of topics; missing topics are left out.

        Asking does not create a topic.

        Raises:
            KafkaError: A topic may not be described, or no broker answers in time.
        """
        wanted = arguments.topics(topics)
        cluster = self._core.cluster
        found = await cluster.describe(wanted, self._deadline(timeout_ms))
        if any(
            _is_news(cluster.metadata.topics.get(name), found.topics.get(name)) for name in wanted
        ):
            cluster.request_refresh()  # the group learns of new partitions sooner
        return {name: found.topics[name] for name in wanted if _is_there(name, found)}

    async def topics(self, timeout_ms: int | None = None) -> frozenset[str]:
        """Return the names of all topics visible to the client."""
        metadata = await self._core.cluster.describe(None, self._deadline(timeout_ms))
        return frozenset(name for name, each in metadata.topics.items() if not each.is_internal)

    def _deadline(self, timeout_ms: int | None) -> Deadline:
        default = self._config.default_api_timeout_ms
        given = arguments.timeout_ms_or_none(timeout_ms)
        return Deadline(default if given is None else given)


def _is_there(name: str, found: ClusterMetadata) -> bool:
    """Whether the brokers know a topic.

    Raises:
        KafkaError: They refuse to describe it.
    """
    topic = found.topics.get(name)
    if topic is not None and topic.error_code:
        text = with_right(topic.error_code, f"topic {name}", "DESCRIBE")
        error = KafkaError(topic.error_code, text)
        if not error.retriable:
            raise error
        return False
    return topic is not None and bool(topic.partitions)


def _is_news(known: TopicMetadata | None, found: TopicMetadata | None) -> bool:
    """Whether a topic's partitions have changed, or the topic was recreated."""
    if known is None or found is None:
        return False
    return known.topic_id != found.topic_id or len(known.partitions) != len(found.partitions)
