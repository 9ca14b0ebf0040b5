"""The topics that a producer sends to: looked up on first use, then kept up to date."""

from __future__ import annotations

from collections.abc import Callable

from kohort.client.config import arguments
from kohort.client.config.definitions import ProducerConfig
from kohort.client.net.backoff import Backoff, Deadline
from kohort.client.net.cluster import Cluster
from kohort.client.producer._open_batches import OpenBatches
from kohort.client.producer.batch import Batch
from kohort.client.producer.delivery import unsure
from kohort.errors import ErrorCode, KafkaError, KohortError, with_right
from kohort.types import TopicPartition

# How long other brokers may not know a partition that was just added, in milliseconds.
_GROWS_MS = 2_000
_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class ProducerTopics:
    """Keeps `OpenBatches` informed of partition counts; on the loop.

    Args:
        config: Settings.
        cluster: The brokers.
        batches: Receives the counts.
        waits: Returns whether records for a topic are still waiting.

    Attributes:
        denied: Topics that the user may not write to, according to the last metadata.
    """

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        batches: OpenBatches,
        waits: Callable[[str], bool],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._batches = batches
        self._waits = waits
        self._searched: dict[str, int] = {}  # number of calls that wait for a topic
        self.denied: frozenset[str] = frozenset()
        cluster.on_metadata.append(self._update)

    def _update(self) -> None:
        known = self._cluster.metadata.topics.items()
        self.denied = frozenset(name for name, each in known if each.error_code == _DENIED)
        for topic in self._batches.topics():
            self._batches.set_partitions(topic, self._count(topic))

    def _count(self, topic: str) -> int:
        known = self._cluster.metadata.topics.get(topic)
        return len(known.partitions) if known and not known.error_code else 0

    async def find(self, topic: str, partition: int | None, deadline: Deadline) -> None:
        """Wait until a topic is available.

        Args:
            topic: The topic.
            partition: The partition it must have; None for any. A new partition may take up to 2
                seconds to appear: not all brokers know it when its creation is answered.
            deadline: When to give up.

        Raises:
            KafkaError: It is not available in time, may not be used, or no broker answers.
            ValueError: The name is not a valid topic name.
        """
        arguments.topic(topic)
        self._searched[topic] = self._searched.get(topic, 0) + 1
        try:
            await self._find(topic, partition, deadline)
        finally:
            self._searched[topic] -= 1
            if not self._searched[topic]:
                del self._searched[topic]
            if self._batches.partitions_of(topic) is None:
                self._watch()

    def _watch(self) -> None:
        """Request metadata of topics in use, and stop for topics that were given up."""
        used = {
            each
            for each in self._batches.topics()
            if self._batches.partitions_of(each) is not None or self._waits(each)
        }
        self._cluster.watch_topics(used | self._searched.keys())

    async def _find(self, topic: str, partition: int | None, deadline: Deadline) -> None:
        pause = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        await self._cluster.ensure_topics([topic], deadline)
        if partition is not None and partition >= self._count(topic) > 0:
            await self._wait_for(topic, partition, deadline)
        while not self._count(topic):
            error = self._why_missing(topic)
            if not error.retriable:
                raise error
            await self._cluster.sleep(pause, deadline)
            if deadline.over:
                raise error
            try:
                await self._cluster.refresh(deadline)
            except KafkaError as late:
                # A broker that answered before is only late: its answer is the better reason.
                raise (self._cluster.unreachable or error) from late
        count = self._count(topic)
        self._batches.set_partitions(topic, count)
        if partition is not None and partition >= count:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{topic} has {count} partitions, no {partition}",
            )

    async def _wait_for(self, topic: str, partition: int, deadline: Deadline) -> None:
        """Ask for a partition until it exists, or should exist by this time."""
        pause = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        grown = Deadline(_GROWS_MS)
        await self._cluster.refresh(deadline)
        while partition >= self._count(topic) > 0 and not (grown.over or deadline.over):
            await self._cluster.sleep(pause, deadline)
            if not deadline.over:
                await self._cluster.refresh(deadline)

    def _why_missing(self, topic: str) -> KafkaError:
        known = self._cluster.metadata.topics.get(topic)
        code = known.error_code if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code in _MISSING:
            return KafkaError(
                code,
                f"there is no topic {topic}; create it (the broker did not create it within"
                f" max.block.ms, {self._config.max_block_ms} ms) or correct its name",
            )
        creates = self._cluster.allow_auto_topic_creation
        text = with_right(code, f"topic {topic}", "WRITE", creates=creates)
        return KafkaError(code or ErrorCode.LEADER_NOT_AVAILABLE, text)

    def denial(self, batch: Batch) -> KohortError:
        """Return the error of a batch for a topic that the user may no longer write to."""
        topic, partition = batch.partition
        error = KafkaError(_DENIED, with_right(_DENIED, f"{topic}-{partition}", "WRITE"))
        return unsure(error) if batch.attempts else error

    def trouble(self, partition: TopicPartition) -> KafkaError | None:
        """Return why a partition cannot be produced to, according to metadata."""
        topic = self._cluster.metadata.topics.get(partition.topic)
        where = f"{partition.topic}-{partition.partition}"
        if topic is None or topic.error_code:
            code = topic.error_code if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            text = with_right(code, f"{where}: the topic can no longer be used", "WRITE")
            return KafkaError(code, text)
        if partition.partition not in topic.partitions:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where} no longer exists")
        if self._cluster.metadata.leader(partition) is None:
            return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{where} has no leader")
        return None
