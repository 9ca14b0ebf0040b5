"""The harness for coroutine tests: the service under test keeps running while they wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from kohort.testing.harness import KafkaHarness
from kohort.testing.harness_clients import DEADLINE_S

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kohort import TopicPartition
    from kohort.broker.faults import Action, Injected
    from kohort.client.admin.values import GroupDescription, MemberDescription
    from kohort.client.consumer.records import ConsumerRecord

T = TypeVar("T")


class AsyncKafkaHarness:
    """`KafkaHarness` with coroutine methods.

    The work runs in a thread; cancelling a wait also cancels it there.

    Args:
        harness: The Kafka, for example the fixture `kohort_broker`.

    Attributes:
        bootstrap_servers: The address for clients.
        blocking: The wrapped harness, for methods without a coroutine.
    """

    def __init__(self, harness: KafkaHarness) -> None:
        self.blocking = harness
        self.bootstrap_servers = harness.bootstrap_servers

    # ------------------------------------------------------------------------------- topics

    async def create_topic(
        self, name: str = "", partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic and return its name; see `KafkaHarness.create_topic`."""
        return await self._run(lambda kafka: kafka.create_topic(name, partitions, configs))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic; see `KafkaHarness.delete_topic`."""
        await self._run(lambda kafka: kafka.delete_topic(name))

    async def produce(self, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
        """Write records with these values; see `KafkaHarness.produce`."""
        await self._run(lambda kafka: kafka.produce(topic, *values, key=key))

    async def records(self, topic: str) -> list[ConsumerRecord]:
        """Return all committed records of a topic; see `KafkaHarness.records`."""
        return await self._run(lambda kafka: kafka.records(topic))

    async def wait_for_records(
        self, topic: str, count: int, timeout_s: float = DEADLINE_S
    ) -> list[ConsumerRecord]:
        """Return records once there are enough; see `KafkaHarness.wait_for_records`."""
        return await self._run(lambda kafka: kafka.wait_for_records(topic, count, timeout_s))

    # ------------------------------------------------------------------------------- groups

    async def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group."""
        return await self._run(lambda kafka: kafka.committed(group))

    async def wait_for_commit(
        self, group: str, counts: Mapping[str, int], timeout_s: float = DEADLINE_S
    ) -> None:
        """Return once a group has committed enough records; see `KafkaHarness.wait_for_commit`."""
        await self._run(lambda kafka: kafka.wait_for_commit(group, counts, timeout_s))

    async def lag(self, group: str, *topics: str) -> dict[TopicPartition, int]:
        """Return how many records a group has not committed yet; see `KafkaHarness.lag`."""
        return await self._run(lambda kafka: kafka.lag(group, *topics))

    async def wait_for_no_lag(
        self, group: str, *topics: str, timeout_s: float = DEADLINE_S
    ) -> None:
        """Return once all records are committed; see `KafkaHarness.wait_for_no_lag`."""
        await self._run(lambda kafka: kafka.wait_for_no_lag(group, *topics, timeout_s=timeout_s))

    async def owners(self, group: str) -> dict[TopicPartition, MemberDescription]:
        """Return the owner of each partition; see `KafkaHarness.owners`."""
        return await self._run(lambda kafka: kafka.owners(group))

    async def wait_for_members(
        self, group: str, count: int, timeout_s: float = DEADLINE_S
    ) -> GroupDescription:
        """Return a group once it is stable; see `KafkaHarness.wait_for_members`."""
        return await self._run(lambda kafka: kafka.wait_for_members(group, count, timeout_s))

    async def rebalance(self, group: str) -> None:
        """Trigger a rebalance; see `KafkaHarness.rebalance`."""
        await self._run(lambda kafka: kafka.rebalance(group))

    async def expire_member(self, group: str, client_id: str = "") -> None:
        """Remove members as a session timeout does; see `KafkaHarness.expire_member`."""
        await self._run(lambda kafka: kafka.expire_member(group, client_id))

    async def delete_group(self, group: str) -> None:
        """Remove a group with its members; see `KafkaHarness.delete_group`."""
        await self._run(lambda kafka: kafka.delete_group(group))

    # ------------------------------------------------------------------------------- faults

    def fault(self, action: Action, **where: object) -> AbstractContextManager[Injected]:
        """Return a context manager (not async) that sets a fault in the broker."""
        return self.blocking.fault(action, **where)

    # ------------------------------------------------------------------------------- inside

    async def _run(self, call: Callable[[KafkaHarness], T]) -> T:
        kafka = self.blocking.apart()
        try:
            return await asyncio.to_thread(call, kafka)
        except asyncio.CancelledError:
            kafka.give_up()
            raise
