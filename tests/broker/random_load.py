"""Loads that record what was acknowledged, for tests that kill the broker meanwhile.

Each runs in its own thread. Acknowledged changes must survive every kill; the last request without
a response may have taken effect or not.
"""

from __future__ import annotations

import random
import threading
from abc import abstractmethod
from collections.abc import Callable

import confluent_kafka

from kohort.errors import ErrorCode
from kohort.types import TopicPartition
from kohort.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kohort.wire.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
)
from kohort.wire.records import decode_records, iter_batches
from tests.broker.log.batches import batch, keyed
from tests.broker.peer import Peer
from tests.broker.processes import DEADLINE_S, BrokerProcess, eventually

FETCH_BYTES = 1 << 24


class Load:
    """A thread that sends one request after another, even while the broker is down.

    Attributes:
        promises: Number of acknowledged requests.
        failure: The error of the thread, if any.
    """

    def __init__(self, broker: BrokerProcess, chance: random.Random) -> None:
        self.broker = broker
        self.chance = chance
        self.promises = 0
        self.failure: BaseException | None = None
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; raise its error, if any."""
        self.stopping.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001  # raised again by `stop`
            self.failure = error

    @abstractmethod
    def work(self) -> None:
        """Send requests until `stopping` is set."""

    @abstractmethod
    def check(self, peer: Peer) -> None:
        """Check all acknowledged changes, and adopt the outcome of a request without a response."""


class PeerLoad(Load):
    """A load of consecutive requests; a lost connection is reopened."""

    def __init__(self, broker: BrokerProcess, chance: random.Random) -> None:
        super().__init__(broker, chance)
        self._between = threading.Lock()

    def work(self) -> None:
        """Send requests until `stopping` is set."""
        while not self.stopping.is_set():
            try:
                with Peer(self.broker.bootstrap_servers) as peer:
                    self.check(peer)  # the last request may have taken effect
                    while not self.stopping.is_set():
                        with self._between:
                            self.ask_one(peer)
                            self.promises += 1
                        # limits the amount of data to check after a kill
                        self.stopping.wait(0.003)
            except OSError:
                self.stopping.wait(0.02)  # the broker is down: retry a little later

    @abstractmethod
    def ask_one(self, peer: Peer) -> None:
        """Send a request, and record its acknowledgement; OSError if there was no response."""

    def check(self, peer: Peer) -> None:
        """Check the state while no request is running."""
        with self._between:
            self.look(peer)

    @abstractmethod
    def look(self, peer: Peer) -> None:
        """Check all acknowledged changes."""


class Topics(PeerLoad):
    """Creates topics, adds partitions to them, and deletes them."""

    def __init__(self, broker: BrokerProcess, chance: random.Random) -> None:
        super().__init__(broker, chance)
        self.partitions: dict[str, int] = {}
        self._wanted: dict[str, int] = {}
        self._made = 0

    def ask_one(self, peer: Peer) -> None:
        """Change one topic."""
        choice = self.chance.random()
        names = sorted(self.partitions)
        if not names or choice < 0.4:
            self._made += 1
            name, count = f"made-{self._made}", self.chance.randrange(1, 4)
            self._change({**self.partitions, name: count}, lambda: peer.create(name, count))
        elif choice < 0.7:
            name = self.chance.choice(names)
            count = self.partitions[name] + 1
            self._change({**self.partitions, name: count}, lambda: grow(peer, name, count))
        else:
            name = self.chance.choice(names)
            kept = {each: count for each, count in self.partitions.items() if each != name}
            self._change(kept, lambda: delete(peer, name))

    def _change(self, wanted: dict[str, int], ask: Callable[[], None]) -> None:
        self._wanted = wanted
        ask()
        self.partitions = wanted

    def look(self, peer: Peer) -> None:
        """Check that each topic exists with all its partitions, and no other."""
        answer = peer.ask(MetadataRequest(topics=None), 12)
        there = {
            topic.name: len(topic.partitions)
            for topic in answer.topics
            if topic.name is not None and topic.name.startswith("made-")
        }
        assert there in (self.partitions, self._wanted), (there, self.partitions, self._wanted)
        self.partitions = self._wanted = there


def grow(peer: Peer, name: str, count: int) -> None:
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=(topic,), timeout_ms=10_000, validate_only=False)
    (answer,) = peer.ask(request, 3).results
    assert answer.error_code == ErrorCode.NONE, answer


def delete(peer: Peer, name: str) -> None:
    request = DeleteTopicsRequest(topic_names=(name,), timeout_ms=10_000)
    (answer,) = peer.ask(request, 5).responses
    assert answer.error_code == ErrorCode.NONE, answer


class Deletions(PeerLoad):
    """Appends to a partition with small segments, and deletes records at its start.

    Attributes:
        end: Offset after the last acknowledged record.
        first: Offset before which all records were deleted.
    """

    PARTITION = TopicPartition("shortened", 0)

    def __init__(self, broker: BrokerProcess, chance: random.Random) -> None:
        super().__init__(broker, chance)
        self.end = self.first = 0
        self._wanted_first = 0

    def ask_one(self, peer: Peer) -> None:
        """Usually append, sometimes delete."""
        if self.chance.random() < 0.8 or self.first == self.end:
            values = [b"%d" % (self.end + i) for i in range(self.chance.randrange(1, 20))]
            answer = peer.produce(self.PARTITION, batch(*values))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, self.end)
            self.end += len(values)
            return
        self._wanted_first = self.chance.randrange(self.first, self.end + 1)
        wanted = DeleteRecordsPartition(partition_index=0, offset=self._wanted_first)
        topic = DeleteRecordsTopic(name=self.PARTITION.topic, partitions=(wanted,))
        request = DeleteRecordsRequest(topics=(topic,), timeout_ms=10_000)
        (result,) = peer.ask(request, 2).topics[0].partitions
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, self._wanted_first)
        self.first = self._wanted_first

    def look(self, peer: Peer) -> None:
        """Check that all records from the start on exist, and none before it can be read."""
        first = earliest(peer, self.PARTITION)
        assert first in (self.first, self._wanted_first), (first, self.first, self._wanted_first)
        found = values_from(peer, self.PARTITION, first)
        end = first + len(found)
        assert end >= self.end, (end, self.end)
        assert found == [b"%d" % offset for offset in range(first, end)]
        if first:
            before = peer.fetch(self.PARTITION, first - 1)
            assert before.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        self.first, self.end, self._wanted_first = first, end, first


class Keys(PeerLoad):
    """Repeatedly writes a few keys to a compacted partition with small segments."""

    PARTITION = TopicPartition("compacted", 0)

    def __init__(self, broker: BrokerProcess, chance: random.Random) -> None:
        super().__init__(broker, chance)
        self.newest: dict[bytes, int] = {}
        self._written = 0

    def ask_one(self, peer: Peer) -> None:
        """Write some keys; the value is the ascending number of the batch."""
        self._written += 1
        keys = {b"%d" % self.chance.randrange(50) for _ in range(10)}
        pairs: list[tuple[bytes, bytes | None]] = [(key, b"%d" % self._written) for key in keys]
        assert peer.produce(self.PARTITION, keyed(pairs)).error_code == ErrorCode.NONE
        self.newest |= dict.fromkeys(keys, self._written)

    def look(self, peer: Peer) -> None:
        """Check that each key has its last acknowledged value, or a later one."""
        found: dict[bytes, int] = {}
        for key, value in pairs_from(peer, self.PARTITION, earliest(peer, self.PARTITION)):
            assert int(value) >= found.get(key, 0), "values of a key go backwards"
            found[key] = int(value)
        old = {key: at for key, at in self.newest.items() if found.get(key, 0) < at}
        assert not old
        self.newest = found


class Member(Load):
    """A member of a group that reads a topic and commits every offset.

    Attributes:
        stored: The last acknowledged offset of each partition.
    """

    def __init__(
        self, broker: BrokerProcess, chance: random.Random, topic: str, protocol: str
    ) -> None:
        super().__init__(broker, chance)
        self.group = f"group-{protocol}"
        self.stored: dict[int, int] = {}
        self._topic = topic
        self._protocol = protocol

    def work(self) -> None:
        """Read and commit; librdkafka retries whatever fails while the broker is down."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "group.id": self.group,
                "group.protocol": self._protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "log_level": 0,
            }
        )
        consumer.subscribe([self._topic])
        try:
            while not self.stopping.is_set():
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    self._store(consumer, message)
        finally:
            consumer.close()

    def _store(self, consumer: confluent_kafka.Consumer, message: confluent_kafka.Message) -> None:
        try:
            stored = consumer.commit(message=message, asynchronous=False)
        except confluent_kafka.KafkaException:
            return
        for position in stored:
            if position.error is None:
                self.stored[position.partition] = position.offset
                self.promises += 1

    def check(self, peer: Peer) -> None:
        """Check that no committed offset is before an acknowledged one."""
        promised = dict(self.stored)
        found = positions(peer, self.group, self._topic, len(promised) and max(promised) + 1)
        behind = {number: at for number, at in promised.items() if found.get(number, -1) < at}
        assert not behind, (self.group, behind, found)


def positions(peer: Peer, group: str, topic: str, partitions: int) -> dict[int, int]:
    """Return the committed offsets of a group, once the broker has loaded it."""
    numbers = tuple(range(partitions))
    wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
    asked = OffsetFetchRequestGroup(group_id=group, topics=(wanted,))
    answers = []

    def loaded() -> bool:
        (answer,) = peer.ask(OffsetFetchRequest(groups=(asked,)), 9).groups
        answers.append(answer)
        return answer.error_code == ErrorCode.NONE

    eventually(loaded, f"{group} is loaded")
    return {
        each.partition_index: each.committed_offset
        for found in answers[-1].topics
        for each in found.partitions
    }


def earliest(peer: Peer, partition: TopicPartition) -> int:
    """Return the start offset of a partition."""
    wanted = ListOffsetsPartition(partition_index=partition.partition, timestamp=-2)
    topic = ListOffsetsTopic(name=partition.topic, partitions=(wanted,))
    answer = peer.ask(ListOffsetsRequest(replica_id=-1, topics=(topic,)), 7)
    return answer.topics[0].partitions[0].offset


def pairs_from(peer: Peer, partition: TopicPartition, offset: int) -> list[tuple[bytes, bytes]]:
    """Return key and value of each record from an offset to the end, read batch by batch."""
    found: list[tuple[bytes, bytes]] = []
    part = peer.fetch(partition, offset, max_bytes=FETCH_BYTES)
    while part.records:
        assert part.error_code == ErrorCode.NONE
        for header, data in iter_batches(part.records):
            found += [
                (record.key or b"", record.value or b"")
                for record in decode_records(data)
                if record.offset >= offset
            ]
            offset = header.next_offset
        part = peer.fetch(partition, offset, max_bytes=FETCH_BYTES)
    assert (part.error_code, part.high_watermark) == (ErrorCode.NONE, offset)
    return found


def values_from(peer: Peer, partition: TopicPartition, offset: int) -> list[bytes]:
    """Return the value of each record from an offset to the end."""
    return [value for _, value in pairs_from(peer, partition, offset)]
