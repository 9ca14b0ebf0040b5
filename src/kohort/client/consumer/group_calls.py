"""What a consumer says of its group, and of itself in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kohort.client.blocking.facade import BlockingFace
from kohort.client.config import arguments
from kohort.client.consumer.async_positions import AsyncPositions
from kohort.client.consumer.core import ConsumerCore
from kohort.client.consumer.membership.metrics import GROUP
from kohort.client.measures import CONSUMER, FETCHES, Metrics, precise_ms
from kohort.errors import CommitFailedError, ConfigError, ErrorCode
from kohort.types import ConsumerGroupMetadata

T = TypeVar("T")


class AsyncGroupCalls(AsyncPositions):
    """The calls of `AsyncConsumer` about its group."""

    _core: ConsumerCore | None

    @property
    def client_id(self) -> str:
        """What the client calls itself (`client_id`)."""
        return self._config.client_id

    @property
    def member_id(self) -> str:
        """Id that the group's coordinator gave to this member; empty when there is none."""
        membership = self._core.membership if self._core else None
        return membership.member.member_id if membership else ""

    @property
    def generation_id(self) -> int:
        """Generation of the group that this member is in; -1 when in none."""
        membership = self._core.membership if self._core else None
        return membership.member.generation_id if membership else -1

    def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        """Have the group rebalance, at the next poll (KIP-568).

        Args:
            reason: Told to the coordinator, cut to 255 characters (KIP-800).

        Raises:
            LocalProtocolError: This is not a member of a group, or one whose coordinator decides
                alone when to rebalance (`group_protocol="consumer"`).
        """
        self.core.enforce_rebalance(arguments.text(reason, "reason", may_be_empty=True))

    def metrics(self) -> Metrics:
        """Return what Kafka's Java consumer measures, by the names of its groups and metrics.

        Latencies are milliseconds; averages, maxima and rates are of the last minute at most, NaN
        or 0 when there was nothing; totals are of all time.

        Returns:
            "consumer-metrics" (connections), "consumer-fetch-manager-metrics" (fetches, records,
            lags; that of a partition is called `TOPIC-NUMBER.records-lag`) and, with a group id,
            "consumer-coordinator-metrics" (KIP-429).
        """
        core, now = self.core, precise_ms()
        found = {
            CONSUMER: core.cluster.traffic.values(now),
            FETCHES: core.fetcher.measures.values(core.partitions, now),
        }
        if core.coordinator is not None:
            joins, assigned = (
                core.config.group_protocol != "consumer",
                len(core.partitions.assigned),
            )
            found[GROUP] = core.coordinator.metrics.values(assigned, now, joins=joins)
        return found

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return as whom this consumer is in its group, for `send_offsets_to_transaction`.

        Ask after the `poll` whose records the transaction is about, and in the thread or task that
        polls. A consumer without a subscription has no member id: the broker then takes offsets
        only as long as the group has no members.

        Raises:
            ConfigError: There is no group id.
            CommitFailedError: It has subscribed, and is not a member now: what it has read may
                belong to another member. Abort, poll, and do again what is read then.
        """
        config = self._config
        if config.group_id is None:
            raise ConfigError("group_metadata needs a group_id")
        core = self.core
        if core.membership is None:
            return ConsumerGroupMetadata(config.group_id)
        member = core.membership.member
        if not member.session.is_member:
            why = core.membership.why_out() or "it has not joined yet, or joins again"
            raise CommitFailedError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"the consumer is not a member of group {config.group_id}: {why}. Abort the"
                " transaction if one is open, and poll",
            )
        return ConsumerGroupMetadata(
            config.group_id, member.generation_id, member.member_id, config.group_instance_id
        )


class GroupCalls(BlockingFace):
    """The calls of `Consumer` about its group."""

    _async: AsyncGroupCalls

    @property
    def client_id(self) -> str:
        """What the client calls itself (`client_id`)."""
        return self._async.client_id

    @property
    def member_id(self) -> str:
        """Id that the group's coordinator gave to this member; empty when there is none."""
        return self._async.member_id

    @property
    def generation_id(self) -> int:
        """Generation of the group that this member is in; -1 when in none."""
        return self._async.generation_id

    @property
    def why_out(self) -> str:
        """Why the member is out of its group without having left; empty when it is not."""
        membership = self._async.core.membership
        return membership.why_out() if membership else ""

    def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        """Have the group rebalance (KIP-568); see `AsyncConsumer.enforce_rebalance`."""
        self._on_loop(lambda: self._async.enforce_rebalance(reason))

    def metrics(self) -> Metrics:
        """Return what Kafka measures; see `AsyncConsumer.metrics`."""
        return self._on_loop(self._async.metrics)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return as whom this is in its group; see `AsyncConsumer.group_metadata`."""
        return self._on_loop(self._async.group_metadata)

    def _on_loop(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return self._thread.run(call)
