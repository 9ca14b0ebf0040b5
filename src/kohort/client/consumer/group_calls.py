"""The methods of a consumer about its group and its membership."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kohort.client.blocking.facade import BlockingFacade
from kohort.client.config import arguments
from kohort.client.consumer.async_positions import AsyncPositions
from kohort.client.consumer.internals import ConsumerInternals
from kohort.client.consumer.membership.metrics import GROUP
from kohort.client.consumer.membership.shell import Membership
from kohort.client.measures import CONSUMER, FETCHES, Metrics, precise_ms
from kohort.errors import CommitFailedError, ConfigError, ErrorCode
from kohort.types import ConsumerGroupMetadata

T = TypeVar("T")


class AsyncGroupCalls(AsyncPositions):
    """The methods of `AsyncConsumer` about its group."""

    @property
    def _membership(self) -> Membership | None:
        return self._internals.made.membership if self._internals.made else None

    @property
    def client_id(self) -> str:
        """The client's name (`client_id`)."""
        return self._config.client_id

    @property
    def member_id(self) -> str:
        """Member id assigned by the group's coordinator; empty when there is none."""
        membership = self._membership
        return membership.member.member_id if membership else ""

    @property
    def generation_id(self) -> int:
        """Generation of the group that this member is in; -1 when it is in none."""
        membership = self._membership
        return membership.member.generation_id if membership else -1

    @property
    def why_out(self) -> str:
        """Why the member is out of its group without having left; empty when it is not."""
        membership = self._membership
        return membership.why_out() if membership else ""

    def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        """Trigger a rebalance of the group, at the next poll (KIP-568).

        Args:
            reason: Sent to the coordinator, cut to 255 characters (KIP-800).

        Raises:
            LocalProtocolError: The consumer is not a member of a group, or the coordinator alone
                decides when to rebalance (`group_protocol="consumer"`).
        """
        self._core.enforce_rebalance(arguments.text(reason, "reason", may_be_empty=True))

    def metrics(self) -> Metrics:
        """Return the metrics of Kafka's Java consumer, by the names of groups and metrics.

        Latencies are in milliseconds. Averages, maxima and rates cover at most the last minute, and
        are NaN or 0 without data; totals cover the lifetime of the consumer.

        Returns:
            "consumer-metrics" (connections), "consumer-fetch-manager-metrics" (fetches, records,
            lags; a partition's lag is named `TOPIC-NUMBER.records-lag`) and, with a group id,
            "consumer-coordinator-metrics" (KIP-429).
        """
        core, now = self._core, precise_ms()
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
        """Return this consumer's identity in its group, for `send_offsets_to_transaction`.

        Call it after the `poll` that returned the transaction's records, in the polling thread or
        task. A consumer without a subscription has no member id: the broker then accepts offsets
        only while the group has no members.

        Raises:
            ConfigError: There is no group id.
            CommitFailedError: It has subscribed but is not a member now: its partitions may belong
                to another member. Abort, poll, and process the records read then.
        """
        config = self._config
        if config.group_id is None:
            raise ConfigError("group_metadata needs a group_id")
        core = self._core
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


class GroupCalls(BlockingFacade):
    """The methods of `Consumer` about its group."""

    _async: AsyncGroupCalls
    _internals: ConsumerInternals

    @property
    def client_id(self) -> str:
        """The client's name (`client_id`)."""
        return self._async.client_id

    @property
    def member_id(self) -> str:
        """Member id assigned by the group's coordinator; empty when there is none."""
        return self._async.member_id

    @property
    def generation_id(self) -> int:
        """Generation of the group that this member is in; -1 when it is in none."""
        return self._async.generation_id

    @property
    def why_out(self) -> str:
        """Why the member is out of its group without having left; empty when it is not."""
        return self._async.why_out

    def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        """Trigger a rebalance of the group (KIP-568); see `AsyncConsumer.enforce_rebalance`."""
        self._on_loop(lambda: self._async.enforce_rebalance(reason))

    def metrics(self) -> Metrics:
        """Return the consumer's metrics; see `AsyncConsumer.metrics`."""
        return self._on_loop(self._async.metrics)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this consumer's identity in its group; see `AsyncConsumer.group_metadata`."""
        return self._on_loop(self._async.group_metadata)

    def _on_loop(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return self._thread.run(call)
