"""The topics that a producer sends to: found when first used, kept up to date afterwards."""

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

# How long a broker may lag behind the one that has added a partition.
_GROWS_MS = 2_000
_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class ProducerTopics:
    """Tells `OpenBatches` how many partitions there are; on the loop.

    Args:
        config: Settings.
        cluster: The brokers.
        batches: Told.
        waits: Says whether records for a topic are not written yet.

    Attributes:
        denied: Topics that the user may not write to, as the last metadata have them.
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
        self._searched: dict[str, int] = {}  # how many calls wait for a topic
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
        """Wait until a topic is there.

        Args:
            topic: The topic.
            partition: The partition it must have; None for any. Brokers have 2 seconds to tell of
                one that was just added: not all of them know it when its creation is answered.
            deadline: Until when.

        Raises:
            KafkaError: It is not there in time, may not be used, or no broker answers.
            ValueError: No topic can have that name.
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
        """Have the brokers asked about what is used, and not for ever about what was given up."""
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
                # A broker that answered before is only late: what it said is the better reason.
                raise (self._cluster.unreachable or error) from late
        count = self._count(topic)
        self._batches.set_partitions(topic, count)
        if partition is not None and partition >= count:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{topic} has {count} partitions, no {partition}",
            )

    async def _wait_for(self, topic: str, partition: int, deadline: Deadline) -> None:
        """Ask for a partition of a topic until it is there, or should have been."""
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
        """Return the error of a batch for a topic that the user may not write to any more."""
        topic, partition = batch.partition
        error = KafkaError(_DENIED, with_right(_DENIED, f"{topic}-{partition}", "WRITE"))
        return unsure(error) if batch.attempts else error

    def trouble(self, partition: TopicPartition) -> KafkaError | None:
        """Return why a partition cannot be produced to, as far as the brokers' metadata says."""
        topic = self._cluster.metadata.topics.get(partition.topic)
        where = f"{partition.topic}-{partition.partition}"
        if topic is None or topic.error_code:
            code = topic.error_code if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            text = with_right(code, f"{where}: the topic cannot be used any more", "WRITE")
            return KafkaError(code, text)
        if partition.partition not in topic.partitions:
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where} is not there any more"
            )
        if self._cluster.metadata.leader(partition) is None:
            return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{where} has no leader")
        return None
