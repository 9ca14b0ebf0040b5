"""Groups of our members on three Apache Kafka nodes: leaders and coordinators move under them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from kohort.client import AsyncAdminClient, AsyncConsumer, AsyncProducer
from kohort.client.admin.values import NewTopic
from kohort.client.config.definitions import ClientConfig
from kohort.client.net.backoff import Deadline
from kohort.client.net.cluster import Cluster
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.client.group_scenarios import Notes
from tests.client.loops import on_a_loop_for
from tests.client.watched_group import PROTOCOLS
from tests.real_kafka.cluster import RealCluster
from tests.system.clients.ours import settings_of

PARTITIONS, NODES = 6, 3
A_MINUTE_MS = 60_000
SESSION_MS = 30_000  # nobody is to be missed while nodes come and go


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    settings = {"group.consumer.session.timeout.ms": str(SESSION_MS)}
    with RealCluster(tmp_path_factory.mktemp("cluster"), settings) as started:
        yield started


class Group:
    """Two members of one group, which read one topic."""

    def __init__(self, servers: str, topic: str, group: str, protocol: str) -> None:
        self.protocol = protocol
        self.seen: list[bytes] = []
        self.notes = Notes()
        chosen = PROTOCOLS[protocol]
        if "group_protocol" not in chosen:
            chosen = chosen | {"session_timeout_ms": SESSION_MS}
        settings = settings_of(servers, group, chosen)
        self.members = [AsyncConsumer(**settings) for _ in range(2)]
        for each in self.members:
            each.subscribe([topic], listener=self.notes)

    async def read(self, wanted: set[bytes]) -> None:
        """Poll until all was read."""
        while not wanted <= set(self.seen):
            await self._poll()

    async def _poll(self) -> None:
        for each in self.members:
            for records in (await each.poll(20)).values():
                self.seen += [record.value for record in records]

    async def share(self) -> None:
        """Poll until both have as much."""
        while any(len(each.assignment()) != PARTITIONS // 2 for each in self.members):
            await self._poll()

    async def close(self) -> None:
        for each in self.members:
            await each.close()


class Topic:
    """A topic that is on all nodes, and what was acknowledged there."""

    def __init__(self, client: Cluster, producer: AsyncProducer, name: str) -> None:
        self.client = client
        self.producer = producer
        self.name = name
        self.written: set[bytes] = set()

    async def write(self) -> set[bytes]:
        """Append ten records to each partition; return all that were ever acknowledged."""
        values = [uuid.uuid4().bytes for _ in range(10 * PARTITIONS)]
        deliveries = [
            await self.producer.send(self.name, value, partition=number % PARTITIONS)
            for number, value in enumerate(values)
        ]
        await asyncio.gather(*deliveries)
        self.written.update(values)
        return self.written

    async def until_in_sync(self) -> None:
        """Wait until every node has everything."""
        nodes = 0
        while nodes < NODES:
            found = await self.client.describe([self.name], Deadline(A_MINUTE_MS))
            partitions = found.topics[self.name].partitions.values()
            nodes = min((len(each.in_sync_replicas) for each in partitions), default=0)

    async def group_on(self, node: int) -> str:
        """The name of a group whose coordinator is this node."""
        while True:
            name = uuid.uuid4().hex
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=(name,))
            answer = await self.client.send_any_until(request, Deadline(A_MINUTE_MS))
            if (answer.coordinators[0].error_code, answer.coordinators[0].node_id) == (0, node):
                return name


@asynccontextmanager
async def replicated_topic(servers: str) -> AsyncIterator[Topic]:
    name = uuid.uuid4().hex
    async with AsyncAdminClient(bootstrap_servers=servers) as admin:
        await admin.create_topics([NewTopic(name, PARTITIONS, NODES)])
    client = Cluster(ClientConfig(bootstrap_servers=servers))
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        topic = Topic(client, producer, name)
        await topic.until_in_sync()
        yield topic
    await client.close()


@on_a_loop_for(180)
async def test_groups_go_on_when_their_coordinator_moves(cluster: RealCluster) -> None:
    """First its node is killed, then the one that it may have moved to ends in order."""
    killed, stopped = cluster.brokers
    async with replicated_topic(cluster.bootstrap_servers) as topic:
        groups = [
            Group(cluster.bootstrap_servers, topic.name, await topic.group_on(2), protocol)
            for protocol in PROTOCOLS
        ]
        for each in groups:
            await each.share()
            await each.read(await topic.write())
        for node, end in ((killed, killed.kill), (stopped, stopped.stop)):
            await asyncio.to_thread(end)
            wanted = await topic.write()
            for each in groups:
                await each.read(wanted)
            await asyncio.to_thread(node.start)
            await topic.until_in_sync()
        for each in groups:
            await each.share()
            await each.close()
            assert sorted(each.seen) == sorted(topic.written), each.protocol
            assert not each.notes.all_of("lost"), each.protocol
